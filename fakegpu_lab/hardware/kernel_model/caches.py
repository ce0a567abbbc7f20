"""What L1 and L2 leave of a kernel's accesses for DRAM.

A simplification: L1 serves whatever its block has read shortly before (within some hundred thousand sectors), and L2
keeps what was used since a capacity's worth of other sectors came in, which is what "least recently used" comes to.
Blocks are taken in the order in which the simulation runs them; on a card they run side by side. L2 is empty at first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Sectors = NDArray[np.int64]

_PENDING = 1 << 18
"""Sectors that are kept before they are sorted together."""
_PAGE_BITS = 16
"""Sectors of a page of the table: 2 MiB of memory."""
_NEVER = -(1 << 62)
_BLOCKS = (1 << 20) - 1


def distinct(values: Sectors) -> Sectors:
    """The values in order, each once: `np.unique`, which sorts also what is in order already, as here most is."""
    if len(values) > 1:
        if (values[1:] < values[:-1]).any():
            values = np.sort(values)
        values = values[np.concatenate(([True], values[1:] != values[:-1]))]
    return values


class _Table:
    """When each sector was last used, as the number of sectors that L2 had fetched by then."""

    def __init__(self) -> None:
        self._pages: dict[int, Sectors] = {}

    def missing(self, sectors: Sectors, before: int, now: int) -> int:
        """Of distinct, sorted sectors, count those not used since `before`; all of them are used `now`."""
        missed = 0
        pages = sectors >> _PAGE_BITS
        starts = np.flatnonzero(np.diff(pages, prepend=pages[0] - 1))
        for start, end in zip(starts, [*starts[1:], len(sectors)], strict=True):
            number = int(pages[start])
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = np.full(1 << _PAGE_BITS, _NEVER, dtype=np.int64)
            places = sectors[start:end] & ((1 << _PAGE_BITS) - 1)
            missed += int(np.count_nonzero(page[places] < before))
            page[places] = now
        return missed


class Caches:
    """Counts the sectors that reach L2 and DRAM.

    Attributes
    ----------
    l2_sectors, read_sectors, written_sectors
        Sectors between L1 and L2, from DRAM, to DRAM; complete after `flush`.
    most_contended
        The most atomic operations on one address.
    """

    def __init__(self, l2_bytes: int) -> None:
        self._capacity = max(l2_bytes // 32, 1)
        self._held, self._dirty = _Table(), _Table()
        self._fetched = 0
        self._loads: list[Sectors] = []
        self._waiting = 0
        self._atomics: dict[int, int] = {}
        self.l2_sectors = 0
        self.read_sectors = 0
        self.written_sectors = 0

    def load(self, sectors: Sectors, blocks: NDArray[np.int64]) -> None:
        """Sectors that requests read, and the block of each."""
        self._loads.append(sectors | (blocks.astype(np.int64) & _BLOCKS) << 43)
        self._waiting += len(sectors)
        if self._waiting >= _PENDING:
            self.flush()

    def store(self, sectors: Sectors, *, atomic: bool = False) -> None:
        """Sectors that requests write; every request goes through to L2."""
        if not len(sectors):
            return
        self.flush()
        self.l2_sectors += len(sectors)
        sectors = distinct(sectors)
        before = self._fetched - self._capacity
        missed = self._held.missing(sectors, before, self._fetched)
        if atomic:
            self.read_sectors += missed
        self.written_sectors += self._dirty.missing(sectors, before, self._fetched)
        self._fetched += missed

    def contended(self, addresses: NDArray[np.int64]) -> None:
        """Count atomic operations by address."""
        for address, count in zip(*np.unique(addresses, return_counts=True), strict=True):
            self._atomics[int(address)] = self._atomics.get(int(address), 0) + int(count)

    @property
    def most_contended(self) -> int:
        """The most atomic operations on one address."""
        return max(self._atomics.values(), default=0)

    def flush(self) -> None:
        """Count the loads that are waiting to be sorted."""
        if not self._loads:
            return
        by_block = distinct(np.concatenate(self._loads))
        self._loads.clear()
        self._waiting = 0
        self.l2_sectors += len(by_block)
        sectors = distinct(by_block & ((1 << 43) - 1))
        missed = self._held.missing(sectors, self._fetched - self._capacity, self._fetched)
        self.read_sectors += missed
        self._fetched += missed
