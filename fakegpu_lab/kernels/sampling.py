"""`sample_programs`: run only some of a kernel's blocks, if you want its traffic and time but not its results."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray


_most: list[int] = []


@contextmanager
def sample_programs(count: int) -> Iterator[None]:
    """Within this context, kernels run at most `count` of their programs (blocks), from the middle of the grid.

    Their figures are scaled up to the whole grid. Results are those of the programs that ran; the others are missing.
    What all programs read of the same memory counts several times for DRAM.
    """
    if not hasattr(count, "__index__") or count < 1:
        raise FakeGpuError(f"sample_programs({count!r}): the number of programs must be a whole number, 1 or more.")
    _most.append(int(count))
    try:
        yield
    finally:
        _most.pop()


def chosen(total: int) -> NDArray[np.int64]:
    """The numbers of the programs that run, of `total`."""
    return middle(total, _most[-1] if _most else total)


def middle(total: int, most: int) -> NDArray[np.int64]:
    """The numbers of at most `most` programs, from the middle of the grid."""
    count = min(total, most)
    return np.arange(count, dtype=np.int64) + (total - count) // 2


PATIENCE = 2.0
"""Seconds until a launch says how far it is."""


class Progress:
    """Shows, after `PATIENCE` seconds and then ever more rarely, how far a launch is; on stdout.

    Parameters
    ----------
    name
        The kernel's.
    total
        What is to run.
    what
        Of what: ``"programs"`` or ``"blocks"``.
    """

    def __init__(self, name: str, total: int, what: str) -> None:
        self._name, self._total, self._what = name, total, what
        self._began = time.monotonic()
        self._due = PATIENCE

    def reached(self, done: int) -> None:
        """Report that so much of the kernel has run, from time to time."""
        spent = time.monotonic() - self._began
        if spent >= self._due and done < self._total:
            left = spent / done * (self._total - done)
            print(
                f"{self._name}: {done:,} of {self._total:,} {self._what} in {spent:.0f} s, {left:.0f} s to go",
                flush=True,
            )
            self._due = 2.5 * spent

    def end(self) -> None:
        """The launch has ended."""
        if self._due > PATIENCE and sys.exc_info()[0] is None:
            print(f"{self._name}: {self._total:,} {self._what} in {time.monotonic() - self._began:.0f} s", flush=True)
