"""A card's memory over simulated time, from events, in a bounded number of rows that keep every extreme.

>>> curve = Curve()
>>> curve.take([(10, 0, 512), (20, 0, 1024), (25, 0, -1024), (40, 0, 512)])
>>> curve.close()
>>> [(row[0], row[1]) for row in curve.rows]
[(10, 512), (20, 1536), (25, 512), (40, 1024)]

A row is a state that the card was in, and from when: the time in ns, the bytes of each category, the bytes reserved.
The curve keeps a row's values until the next one. When there are too many rows, time is divided into stretches of the
same length, and of each the lowest, the highest and the last row are kept: so no peak is ever lost, however long the
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.driver.memory_report.live_memory import MOVED, RESERVED

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[int, ...]

ROWS = 900
"""The most rows of a curve."""


class Curve:
    """The memory of one card.

    Attributes
    ----------
    rows
        In order of time; `close` adds what happened since the last call.
    numbers
        The number of each row; they grow, and thinning takes some out.
    held
        The bytes held by tensors now.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.numbers: list[int] = []
        self.held = 0
        self._values = [0] * (RESERVED + 1)
        self._number = 0
        self._now = 0
        self._width = 0
        self._until = -1  # the end of the open stretch; there is none below 0
        self._low = self._high = 0
        self._low_row: Row = ()
        self._high_row: Row = ()

    def take(self, events: Iterable[tuple[int, int, int]]) -> None:
        """Take in events, each its time, code and change; see `live_memory.EVENTS`."""
        values = self._values
        held, now, until = self.held, self._now, self._until
        low, high, fresh = self._low, self._high, not self._high_row
        for ns, code, change in events:
            later = max(now, ns)
            if later >= until:
                self._now = now
                self.close()
                self._until = until = later + self._width
                fresh = True
            now = later
            if code < RESERVED:
                values[code] += change
                held += change
            elif code == RESERVED:
                values[code] += change
            else:
                before, after = divmod(code - MOVED, 10)
                values[before] -= change
                values[after] += change
            if held > high or fresh:
                high = held
                self._high_row = (now, *values)
                if fresh:
                    low, self._low_row, fresh = held, self._high_row, False
            elif held < low:
                low = held
                self._low_row = (now, *values)
        self.held, self._now, self._low, self._high = held, now, low, high

    def close(self) -> None:
        """Add rows for what happened since the last call."""
        if not self._high_row:
            return
        last = (self._now, *self._values)
        extremes = [self._low_row, self._high_row]
        if self._low_row[0] > self._high_row[0]:
            extremes.reverse()
        for row in (*extremes, last):
            if not self.rows or row != self.rows[-1]:
                self._number += 1
                self.rows.append(row)
                self.numbers.append(self._number)
        self._low_row = self._high_row = ()
        self._until = -1
        if len(self.rows) > ROWS:
            kept = thinned(self.rows, ROWS // 2)
            self.rows, self.numbers = [self.rows[place] for place in kept], [self.numbers[place] for place in kept]
            self._width = (self.rows[-1][0] - self.rows[0][0]) * 3 // ROWS

    def since(self, number: int) -> tuple[Row, ...]:
        """The rows with larger numbers."""
        return tuple(row for found, row in zip(self.numbers, self.rows, strict=True) if found > number)

    @property
    def number(self) -> int:
        """The last row's number."""
        return self._number


def thinned(rows: list[Row], most: int) -> list[int]:
    """The places of about `most` rows that keep the lowest, highest and last one of each stretch of time."""
    began, ended = rows[0][0], rows[-1][0]
    stretches = max(1, most // 3)
    wide = max(1, -(-(ended - began + 1) // stretches))
    kept: set[int] = {0}
    held = [sum(row[1:-1]) for row in rows]
    first = 0
    for place in range(1, len(rows) + 1):
        if place == len(rows) or (rows[place][0] - began) // wide != (rows[first][0] - began) // wide:
            inside = range(first, place)
            kept |= {min(inside, key=held.__getitem__), max(inside, key=held.__getitem__), place - 1}
            first = place
    return sorted(kept)


def kept(rows: Iterable[Row], most: int) -> list[Row]:
    """About this many of the rows, as `thinned` chooses them."""
    given = list(rows)
    return [given[place] for place in thinned(given, most)] if len(given) > most else given
