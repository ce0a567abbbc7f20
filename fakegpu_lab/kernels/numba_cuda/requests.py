"""Makes requests of what threads accessed: one row of 32 lanes for each instruction of each warp.

Threads run one after the other, so which lanes a card would have served together is worked out afterwards: the n-th
time that a thread executes an instruction since the last barrier belongs to the n-th time of the other lanes of its
warp. For straight code and for loops with a fixed number of rounds that is what a card does. In a loop whose rounds
differ by lane around an access that is itself conditional, lanes of different rounds may fall into one request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fakegpu_lab.kernels.numba_cuda.arrays import POSITION_BITS
from fakegpu_lab.kernels.numba_cuda.threads import WARP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.kernels.numba_cuda.arrays import AccessNotes, Site
    from fakegpu_lab.kernels.numba_cuda.threads import Segments

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Accesses:
    """Columns of what was noted: a row for each access of a thread.

    `barrier` numbers the stretches of a block between two barriers. Making the columns empties the notes.
    """

    def __init__(self, notes: AccessNotes, segments: Segments) -> None:
        codes: Ints = np.array(notes.codes, np.int64)
        rows: Ints = np.array(segments.rows, np.int64).reshape(-1, 5)
        self.sites = notes.sites
        self.site: Ints = codes >> POSITION_BITS
        self.position: Ints = codes & ((1 << POSITION_BITS) - 1)
        columns = np.repeat(rows[:, :4], rows[:, 4], axis=0)
        self.block, self.thread, self.epoch, self.warp_epoch = (columns[:, i] for i in range(4))
        self.barrier: Ints = np.repeat(_dense(rows[:, 0], rows[:, 2]), rows[:, 4])
        address = np.array([site.memory.address for site in self.sites] or [0], np.int64)
        size = np.array([site.memory.elements.itemsize for site in self.sites] or [1], np.int64)
        self.address: Ints = address[self.site] + self.position * size[self.site]
        self.harmless: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(len(codes), np.bool_)
        self.harmless[[place for place in notes.unchanged if place < len(codes)]] = True
        notes.unchanged.clear()
        notes.codes.clear()
        segments.rows.clear()

    def requests(self) -> Iterator[tuple[Site, Ints, Ints]]:
        """For each site, its requests: addresses of 32 lanes a row (-1: the lane took no part), and their blocks."""
        if not len(self.site):
            return
        warp = _dense(self.block, self.thread // WARP, self.epoch, self.site)
        lane = self.thread % WARP
        turn = _occurrence(_dense(warp, lane))
        request, first = _dense_with_first(warp, turn)
        addresses: Ints = np.full((len(first), WARP), -1, np.int64)
        addresses[request, lane] = self.address
        site, block = self.site[first], self.block[first]
        for number in np.unique(site):
            of_site = site == number
            yield self.sites[int(number)], addresses[of_site], block[of_site]

    def race(self) -> Race | None:
        """The first race between threads of a block: accesses with no barrier between them."""
        if not len(self.site):
            return None
        left = np.flatnonzero(~self.harmless & self._beside_a_write())
        if not len(left):
            return None
        kinds, thread, warp = self.kinds()[left], self.thread[left], self.thread[left] // WARP
        together = self.shared()[left], self.barrier[left], self.address[left]
        for keys, who in ((together, warp), ((*together, warp, self.warp_epoch[left]), thread)):
            found = racing(_dense_with_first(*keys), who, kinds)
            if found is not None:
                rows = left[list(found)]
                columns = self.position, self.site, self.block, self.thread
                return Race.of(self.sites, *(column[rows].tolist() for column in columns))
        return None

    def _beside_a_write(self) -> Any:
        """Whether the block writes to the same array before the same barrier: where nothing is written, no race is.

        It spares `race` to sort what a kernel only reads, most of what kernels do.
        """
        memories = {id(site.memory): site.memory for site in self.sites}
        numbers = {key: number for number, key in enumerate(memories)}
        array = np.array([numbers[id(site.memory)] for site in self.sites])[self.site]
        place = self.barrier * len(numbers) + array
        written = np.zeros(int(place.max()) + 1, np.bool_)
        written[place[self.kinds() != _KINDS["load"]]] = True
        return written[place]

    def kinds(self) -> Ints:
        """The kind of each access, as a number."""
        return np.array([_KINDS[site.kind] for site in self.sites])[self.site]

    def shared(self) -> Ints:
        """Whether each access is one of shared memory."""
        return np.array([site.memory.space == "shared" for site in self.sites])[self.site].astype(np.int64)


class Between:
    """Finds races between blocks, which nothing orders within a launch: it keeps one access of each block and kind."""

    def __init__(self) -> None:
        self._kept: list[Ints] = []
        self._sites: list[Site] = []

    def add(self, accesses: Accesses) -> None:
        """Look at some more accesses of the launch."""
        if not len(accesses.site):
            return
        self._sites = accesses.sites
        kinds = accesses.kinds()
        same = accesses.harmless & (kinds == _KINDS["store"])
        outside = np.flatnonzero((accesses.shared() == 0) & (same | ~accesses.harmless))
        if not len(outside):
            return
        kinds = np.where(same, _OF_THE_SAME, kinds)
        columns = accesses.address, accesses.block, kinds
        _, first = _dense_with_first(*(column[outside] for column in columns))
        first = outside[np.sort(first)]
        kept = (accesses.address, accesses.block, kinds, accesses.site, accesses.thread, accesses.position)
        self._kept.append(np.stack([column[first] for column in kept]))

    def race(self) -> Race | None:
        """The first race between two blocks."""
        if not self._kept:
            return None
        kept = np.concatenate(self._kept, axis=1)
        address, kinds = kept[0], kept[2]
        if (same := kinds == _OF_THE_SAME).any():
            kept = kept[:, ~same | np.isin(address, address[kinds == _KINDS["atomic"]])]
        address, block, kinds, site, thread, position = kept
        found = racing(_dense_with_first(address), block, kinds) if len(address) else None
        if found is None:
            return None
        rows = position, site, block, thread
        return Race.of(self._sites, *(column[list(found)].tolist() for column in rows))


_KINDS = {"load": 0, "store": 1, "atomic": 2}
_OF_THE_SAME = 3
"""A store that leaves the value as it was: it races with nothing but other blocks' atomic operations."""


@dataclass(frozen=True)
class Race:
    """Two threads that access one element, at least one of them to write, and nothing orders them.

    A store that leaves the value as it was does not count: several threads may write the same. But it does beside other
    blocks' atomic operations, which may come before it. `position` is the element's place in its array's memory.
    """

    position: int
    first: Site
    second: Site
    first_block: int
    second_block: int
    first_thread: int
    second_thread: int

    @classmethod
    def of(cls, sites: list[Site], position: list[int], site: list[int], block: list[int], thread: list[int]) -> Race:
        """From the columns of two accesses."""
        return cls(position[0], sites[site[0]], sites[site[1]], *block, *thread)


def racing(places: tuple[Ints, Ints], who: Ints, kinds: Ints) -> tuple[int, int] | None:
    """The rows of the first two accesses to one place that race: by different ones of `who`, and not only reads.

    Atomic operations do not race with each other, but with plain reads and writes.
    """
    place, first = places
    several = _spread(place, who, len(first))
    stored = np.bincount(place, kinds == _KINDS["store"], len(first)) > 0
    mixed = _spread(place, kinds, len(first)) & (np.bincount(place, kinds == _KINDS["atomic"], len(first)) > 0)
    found = np.flatnonzero(several & (stored | mixed))
    if not len(found):
        return None
    rows = np.flatnonzero(place == found[np.argmin(first[found])])
    for kind in (_KINDS["store"], _KINDS["atomic"]):
        for one in rows[kinds[rows] == kind][:64]:
            others = rows[(who[rows] != who[one]) & ((kinds[rows] != kind) | (kind == _KINDS["store"]))]
            if len(others):
                pair = sorted((int(one), int(others[0])))
                return pair[0], pair[1]
    return None


def _dense_with_first(*columns: Ints) -> tuple[Ints, Ints]:
    """A number for each different row, counted from 0, and the first row of each number."""
    number: Ints = np.zeros(len(columns[0]), np.int64)
    span = 1
    for column in columns:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        if width > 1 << 31:
            column = np.unique(column, return_inverse=True)[1]  # noqa: PLW2901
            low, width = 0, int(column.max(initial=0)) + 1
        if span * width > 1 << 62:
            number = np.unique(number, return_inverse=True)[1]
            span = int(number.max(initial=0)) + 1
        number = number * width + (column - low)
        span *= width
    first: Ints
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return number, first


def _dense(*columns: Ints) -> Ints:
    return _dense_with_first(*columns)[0]


def _occurrence(group: Ints) -> Ints:
    """For each row, how many rows of the same group come before it."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    result: Ints = np.empty(len(group), np.int64)
    result[order] = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    return result


def _spread(group: Ints, values: Ints, groups: int) -> Any:
    """For each group, whether its rows have different values."""
    least = np.full(groups, np.iinfo(np.int64).max)
    most = np.full(groups, np.iinfo(np.int64).min)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return least != most
