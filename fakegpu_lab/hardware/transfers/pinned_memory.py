"""Pinned host memory: how long it takes the host to get it and to copy into it, and PyTorch's cache of it.

CUDA locks each page, which is slow, so PyTorch keeps the blocks that tensors give back, and rounds sizes up to powers
of two to find one that fits. A block whose last asynchronous copy is not done yet is not given out again
(aten/src/ATen/core/CachingHostAllocator.h). So pinning batch after batch of the same size soon costs only the copy.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host

PAGE = 4096
LOCK_NS_PER_PAGE = 2_500
"""cudaHostAlloc: 494.8 ms for 196,608 pages beside an A100 (EPYC 7H12, github.com/pytorch/pytorch/pull/197868). On
other machines it was 1.5 µs a page (32 MB in 11.6 ms, github.com/rapidsai/dask-cuda/issues/106) and 3.6 µs (20 GB in
17.4 s, github.com/novitalabs/pegaflow/pull/277). What a call costs apart from its pages is left out."""

COPY_RATE = 10.0e9
"""Bytes per second of one host thread that copies to pinned memory, as in a pageable copy (`network.links`): 1 ms for
10 MB. A DataLoader's pinning thread copies alone (torch/utils/data/_utils/pin_memory.py). Simplified: so does every
other thread. With all its cores, a server took 0.112 ms for 4 MB that were in its cache (PyTorch's tutorial "A guide on
good usage of non_blocking and pin_memory()")."""


class _Lease(weakref.ref["PinnedBlock"]):
    """Lives as long as the block's memory of `size` bytes; `until` is when the last copy that uses it is done, ns.

    `owed` is how long locking the pages takes the host that gets the memory next: nobody has waited for it yet.
    """

    __slots__ = ("owed", "size", "until")

    owed: int
    size: int
    until: int


class PinnedBlock:
    """Pinned memory that somebody holds; when nobody does, it can be given out again."""

    __slots__ = ("__weakref__", "lease")

    lease: _Lease

    def used(self, until: int) -> None:
        """Note an asynchronous copy, which ends at a time."""
        self.lease.until = max(self.lease.until, until)


@dataclass
class Count:
    """A statistic of torch's (`Stat`, c10/core/CachingDeviceAllocator.h)."""

    current: int = 0
    peak: int = 0
    allocated: int = 0
    freed: int = 0

    def add(self, amount: int) -> None:
        """Count an increase, or a decrease."""
        self.current += amount
        self.peak = max(self.peak, self.current)
        self.allocated += max(amount, 0)
        self.freed += max(-amount, 0)


@dataclass
class Duration:
    """A statistic of times, in microseconds (`DurationStat`)."""

    total: int = 0
    max: int = 0
    min: int = 0
    count: int = 0

    def add(self, ns: int) -> None:
        """Count one call."""
        amount = ns // 1000
        self.total += amount
        self.count += 1
        self.max = max(self.max, amount)
        self.min = amount if self.count == 1 else min(self.min, amount)


class PinnedMemory:
    """The pinned memory of a process, with its statistics (torch.cuda.host_memory_stats)."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[_Lease]] = defaultdict(list)
        self._in_copies: list[_Lease] = []
        self._leases: set[_Lease] = set()
        self._blocks, self._bytes = Count(), Count()
        self._active: defaultdict[int, Count] = defaultdict(Count)
        self._locking = Duration()
        self.sizes: list[int] | None = None
        """Set to a list, it gets the sizes of the blocks that are given out."""

    def take(self, host: Host, nbytes: int) -> PinnedBlock:
        """Give out a block, for which the host pays if its pages must be locked first."""
        block = self.take_ahead(host.now, nbytes)
        host.work(block.lease.owed)
        block.lease.owed = 0
        return block

    def take_ahead(self, now: int, nbytes: int) -> PinnedBlock:
        """Give out a block for which nobody pays before it is given out again."""
        block = PinnedBlock()
        size = 1 << (nbytes - 1).bit_length() if nbytes else 0
        owed = 0
        self._finish_copies(now)
        if size and self._free[size]:
            before = self._free[size].pop()
            owed = before.owed
            self._leases.discard(before)
        elif size:
            owed = -(-size // PAGE) * LOCK_NS_PER_PAGE
            self._locking.add(owed)
            self._blocks.add(1)
            self._bytes.add(size)
        block.lease = _Lease(block, self._given_back if size else None)
        block.lease.size, block.lease.until, block.lease.owed = size, 0, owed
        if size:
            self._active[size].add(1)
            self._leases.add(block.lease)
            if self.sizes is not None:
                self.sizes.append(size)
        return block

    def _given_back(self, lease: weakref.ref[PinnedBlock]) -> None:
        assert isinstance(lease, _Lease)
        if lease.until:
            self._in_copies.append(lease)
        else:
            self._reusable(lease)

    def _reusable(self, lease: _Lease) -> None:
        self._free[lease.size].append(lease)
        self._active[lease.size].add(-1)

    def _finish_copies(self, now: int) -> None:
        """Take back what copies have used, in order, up to the first copy that is not done (process_events)."""
        while self._in_copies and self._in_copies[0].until <= now:
            self._reusable(self._in_copies.pop(0))

    def empty_cache(self, now: int) -> None:
        """Unlock what nobody uses. Simplified: it takes no time."""
        self._finish_copies(now)
        for size, leases in self._free.items():
            self._blocks.add(-len(leases))
            self._bytes.add(-size * len(leases))
            self._leases.difference_update(leases)
            leases.clear()

    @property
    def used_bytes(self) -> int:
        """The bytes of the blocks that tensors, copies and a DataLoader's thread use."""
        return sum(size * count.current for size, count in list(self._active.items()))

    @property
    def reserved_bytes(self) -> int:
        """The bytes of all blocks."""
        return self._bytes.current

    def stats(self) -> dict[str, Any]:
        """The statistics, as torch nests them; the peaks of the sizes add up (`getStats`)."""
        active, active_bytes = Count(), Count()
        for size, count in list(self._active.items()):
            for name, value in asdict(count).items():
                setattr(active, name, getattr(active, name) + value)
                setattr(active_bytes, name, getattr(active_bytes, name) + size * value)
        counts = {
            "allocations": self._blocks,
            "allocated_bytes": self._bytes,
            "active_requests": active,
            "active_bytes": active_bytes,
        }
        times = {"host_alloc_time": self._locking, "host_free_time": Duration()}
        return {
            "num_host_alloc": self._blocks.allocated,
            "num_host_free": self._blocks.freed,
            **{name: asdict(count) for name, count in counts.items()},
            **{name: asdict(one) | {"avg": one.total // max(one.count, 1)} for name, one in times.items()},
        }

    def reset_peak(self) -> None:
        """Set every peak to the current value."""
        for count in (self._blocks, self._bytes, *self._active.values()):
            count.peak = count.current
        self._locking.max = self._locking.min = 0

    def reset_accumulated(self) -> None:
        """Count from zero again."""
        for count in (self._blocks, self._bytes, *self._active.values()):
            count.allocated = count.freed = 0
        self._locking.total = self._locking.count = 0


def copy_ns(nbytes: int) -> int:
    """Nanoseconds for which a copy to pinned memory keeps the host busy."""
    return round(nbytes / COPY_RATE * 1e9)
