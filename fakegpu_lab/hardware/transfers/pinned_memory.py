"""Pinned host memory: how long it takes the host to get it and to copy into it, and PyTorch's cache of it.

CUDA locks each page, which is slow, so PyTorch keeps the blocks that tensors give back, and rounds sizes up to powers
of two to find one that fits. A block whose last asynchronous copy is not done yet is not given out again
(aten/src/ATen/core/CachingHostAllocator.h). So pinning batch after batch of the same size soon costs only the copy.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from typing import TYPE_CHECKING

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
    """Lives as long as the block's memory; `until` is when the last copy that uses it is done, ns."""

    __slots__ = ("until",)

    until: int


class PinnedBlock:
    """Pinned memory that somebody holds; when nobody does, it can be given out again."""

    __slots__ = ("__weakref__", "lease")

    lease: _Lease

    def used(self, until: int) -> None:
        """Note an asynchronous copy, which ends at a time."""
        self.lease.until = max(self.lease.until, until)


class PinnedMemory:
    """The pinned memory of a process."""

    def __init__(self) -> None:
        self._free: defaultdict[int, list[_Lease]] = defaultdict(list)
        self._leases: set[_Lease] = set()

    def take(self, host: Host, nbytes: int) -> PinnedBlock:
        """Give out a block, for which the host pays if its pages must be locked first."""
        size = 1 << max(nbytes - 1, 0).bit_length()
        free = self._free[size]
        for place, lease in enumerate(free):
            if lease.until <= host.now:
                del free[place]
                self._leases.discard(lease)
                break
        else:
            host.work(-(-size // PAGE) * LOCK_NS_PER_PAGE if nbytes else 0)
        block = PinnedBlock()
        block.lease = _Lease(block, free.append)
        block.lease.until = 0
        self._leases.add(block.lease)
        return block


def copy_ns(nbytes: int) -> int:
    """Nanoseconds for which a copy to pinned memory keeps the host busy."""
    return round(nbytes / COPY_RATE * 1e9)
