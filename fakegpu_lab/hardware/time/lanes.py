"""Stretches of time that follow one another, found by bisection."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Generic, TypeVar

T = TypeVar("T")
start_of, end_of = itemgetter(0), itemgetter(1)


class Lane(Generic[T]):
    """Work of which each piece starts where the one before has ended, or later: start, end, and what it takes.

    A host that is far ahead has thousands of kernels queued, of which a new one meets a few.
    """

    __slots__ = ("work",)

    def __init__(self) -> None:
        self.work: list[tuple[int, int, T]] = []

    def takes(self, start: int) -> bool:
        """Whether work that starts then can be the next."""
        return not self.work or self.work[-1][1] <= start

    def after(self, when: int) -> list[tuple[int, int, T]]:
        """What ends after `when`."""
        return self.work[bisect_right(self.work, when, key=end_of) :]

    def between(self, start: int, end: int) -> list[tuple[int, int, T]]:
        """What runs at some time from `start` to `end`."""
        first = bisect_right(self.work, start, key=end_of)
        return self.work[first : bisect_left(self.work, end, first, key=start_of)]

    def forget(self, now: int) -> None:
        """Drop what has ended by then."""
        del self.work[: bisect_right(self.work, now, key=end_of)]
