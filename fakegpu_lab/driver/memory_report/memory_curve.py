"""A card's memory over simulated time, from events, in a bounded number of rows that keep every extreme.

>>> curve = Curve()
>>> curve.take([10, 20, 25, 40], [0, 0, 0, 0], [512, 1024, -1024, 512])
>>> [(row[0], row[1]) for row in curve.rows]
[(10, 512), (20, 1536), (25, 512), (40, 1024)]

A row is a state that the card was in, and from when: the time in ns, the bytes of each category, the bytes reserved.
The curve keeps a row's values until the next one. When there are too many rows, time is divided into stretches of the
same length, and of each the lowest, the highest and the last row are kept: so no peak is ever lost, however long the
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fakegpu_lab.driver.memory_report.live_memory import MOVED, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike, NDArray

    Whole: TypeAlias = "NDArray[np.int64]"

Row = tuple[int, ...]

ROWS = 900
"""The most rows of a curve."""


class Curve:
    """The memory of one card.

    Attributes
    ----------
    rows
        In order of time.
    numbers
        The number of each row; they grow, and thinning takes some out.
    held
        The bytes held by tensors now.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.numbers: list[int] = []
        self.held = 0
        self._last: Whole = np.zeros(RESERVED + 2, np.int64)
        self._number = 0
        self._wide = 1

    def take(self, ns: ArrayLike, codes: ArrayLike, changes: ArrayLike) -> None:
        """Take in events: the time, code and change of each; see `live_memory.EVENTS`."""
        self._add(self._states(np.asarray(ns), np.asarray(codes), np.asarray(changes)))

    def put(self, row: Row) -> None:
        """Take in a state that was read: a whole row, not earlier than the last one."""
        self._add(np.array([row], np.int64))

    def _add(self, states: Whole) -> None:
        self._last = states[-1]
        self.held = int(states[-1, 1:-1].sum())
        wide = max(self._wide, _width(states, ROWS // 2))
        new = list(map(tuple, states[_extremes(states, wide)].tolist()))
        if self.rows and self.rows[-1] == new[0]:
            del new[0]
        self.rows += new
        self.numbers += range(self._number + 1, self._number + 1 + len(new))
        self._number += len(new)
        if len(self.rows) > ROWS:
            places = thinned(self.rows, ROWS // 2)
            self.rows, self.numbers = [self.rows[place] for place in places], [self.numbers[place] for place in places]
            self._wide = (self.rows[-1][0] - self.rows[0][0]) * 3 // ROWS + 1

    def _states(self, ns: Whole, codes: Whole, changes: Whole) -> Whole:
        """The state after each event."""
        states = np.zeros((len(ns), RESERVED + 2), np.int64)
        moved = codes >= MOVED
        if moved.any():
            places, (before, after) = np.flatnonzero(moved), np.divmod(codes[moved] - MOVED, 10)
            np.add.at(states, (places, before + 1), -changes[moved])
            np.add.at(states, (places, after + 1), changes[moved])
            places = np.flatnonzero(~moved)
            states[places, codes[places] + 1] = changes[places]
        else:
            states[np.arange(len(ns)), codes + 1] = changes
        states[0] += self._last
        states = states.cumsum(axis=0)
        states[:, 0] = np.maximum(np.maximum.accumulate(ns), self._last[0])
        return states

    def since(self, number: int) -> tuple[Row, ...]:
        """The rows with larger numbers."""
        return tuple(row for found, row in zip(self.numbers, self.rows, strict=True) if found > number)

    @property
    def number(self) -> int:
        """The last row's number."""
        return self._number


def _width(states: Whole, most: int) -> int:
    """How long stretches are of which about `most` rows are kept: 1 ns if there are no more."""
    return 1 if len(states) <= most else int(-(-(states[-1, 0] - states[0, 0] + 1) // max(1, most // 3)))


def _extremes(states: Whole, wide: int) -> Whole:
    """The places of the lowest, highest and last state of each stretch that is `wide` ns long; if that is 1, of all."""
    if wide <= 1:
        return np.arange(len(states))
    stretch = (states[:, 0] - states[0, 0]) // wide
    first = np.flatnonzero(np.diff(stretch, prepend=-1))
    each = np.diff(first, append=len(states))
    held = states[:, 1:-1].sum(axis=1)
    places = [first + each - 1]
    for extreme in (np.minimum, np.maximum):
        there = np.flatnonzero(held == np.repeat(extreme.reduceat(held, first), each))
        places.append(there[np.unique(stretch[there], return_index=True)[1]])  # the first of each
    return np.unique(np.concatenate(places))


def thinned(rows: list[Row], most: int) -> list[int]:
    """The places of about `most` rows that keep the lowest, highest and last one of each stretch of time."""
    states = np.array(rows, np.int64)
    kept: list[int] = _extremes(states, max(2, _width(states, most))).tolist()
    return kept if kept[0] == 0 else [0, *kept]


def kept(rows: Iterable[Row], most: int) -> list[Row]:
    """About this many of the rows, as `thinned` chooses them."""
    given = list(rows)
    return [given[place] for place in thinned(given, most)] if len(given) > most else given
