"""What a submission takes: time, memory of its processes, bytes of its files."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path


_ASLEEP = frozenset([psutil.STATUS_SLEEPING, psutil.STATUS_IDLE, psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE])
"""A process that wants a processor, and gets none on a busy computer, is none of these."""


class Spent:
    """The time that a submission has used: on processors, and waiting for nothing but itself.

    The clock of the wall says nothing about a submission on a busy computer. Asleep is who does not want a processor.

    Attributes
    ----------
    processor, asleep
        In seconds.
    """

    def __init__(self) -> None:
        self.processor = self.asleep = 0.0
        self._looked = time.monotonic()

    def look(self, tree: list[psutil.Process]) -> None:
        """Look at the processes: the first is the parent of the others."""
        total, waiting, now = 0.0, True, time.monotonic()
        for number, process in enumerate(tree):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                if number == 0:
                    total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
                waiting &= os.name == "nt" or process.status() in _ASLEEP  # Windows calls all of them running
        if waiting and total <= self.processor + 0.01:
            self.asleep += min(now - self._looked, LONGEST_LOOK)
        self.processor, self._looked = max(self.processor, total), now


LONGEST_LOOK = 0.5
"""Seconds between two looks; of a longer time, the grader itself waited for a processor."""


def memory(tree: list[psutil.Process], enough: int) -> int:
    """Bytes that processes hold. Above `enough`, memory that forked ones share counts once, if the system knows it."""
    held = proportional = 0
    for process in tree:
        with contextlib.suppress(psutil.Error):
            held += process.memory_info().rss
    if held <= enough or len(tree) == 1:
        return held
    for process in tree:
        with contextlib.suppress(psutil.Error):
            full = process.memory_full_info()
            proportional += getattr(full, "pss", full.uss)
    return proportional


def size(folder: Path, enough: int) -> int:
    """Bytes of all files in `folder`; counting stops above `enough`."""
    total, stack = 0, [str(folder)]
    while stack and total <= enough:
        with contextlib.suppress(OSError), os.scandir(stack.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        stack.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total
