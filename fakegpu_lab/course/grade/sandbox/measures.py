"""What a submission takes: memory of its processes, bytes of its files."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path


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
