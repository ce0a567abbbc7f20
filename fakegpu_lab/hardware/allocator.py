"""A GPU's memory as PyTorch hands it out: the caching allocator, in pure Python.

>>> gpu = CachingAllocator(0, 16 * 2**30)
>>> one = gpu.malloc(1)
>>> one.size, gpu.allocated_bytes, gpu.reserved_bytes
(512, 512, 2097152)
>>> gpu.free(one)
>>> gpu.empty_cache()
>>> gpu.reserved_bytes
0

It does what DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp does, down to which block is taken and what
is counted; comments name the function there. `malloc` and `free` are on the path of every simulated op, so they are
written out in one piece each. Everything slow is in `allocator_segments`; everything unusual (a recorded history,
blocks shared between streams, settings other than the defaults) goes through `_prepare` and `_finish` first and then
takes the same steps.

`free` is called from ``__del__``, which the garbage collector may run in the middle of `malloc`, on this thread or
on another one. It never waits: if the allocator is busy, the block is queued, and whoever is busy frees it at the end.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from sys import getrefcount
from collections.abc import Callable, Sequence
from typing import Any

from fakegpu_lab.hardware.allocator_history import ALL, STATE, History, merge_snapshots
from fakegpu_lab.hardware.allocator_oom import DeviceOutOfMemory
from fakegpu_lab.hardware.allocator_segments import SegmentStore
from fakegpu_lab.hardware.allocator_settings import (
    MIN_BLOCK_BYTES,
    SMALL_LIMIT_BYTES,
    UNLIMITED,
    AllocatorSettings,
)
from fakegpu_lab.hardware.allocator_stats import change_stat
from fakegpu_lab.hardware.allocator_streams import EventQueue, FinishedClock, StreamClock
from fakegpu_lab.hardware.blocks import (
    ALLOCATED,
    FREE,
    NULL,
    PENDING,
    QUEUED,
    SHARED,
    UNMAPPED,
    Block,
    FreeList,
    PoolId,
    PrivatePool,
    Segment,
)

__all__ = ["AllocatorSettings", "Block", "CachingAllocator", "DeviceOutOfMemory", "StreamClock", "merge_snapshots"]

def _count(block):
    return getrefcount(block)
_ALONE=3
_NEVER = UNLIMITED  # no block leaves that much: do not split


class CachingAllocator(SegmentStore):
    """The memory of one device.

    Parameters
    ----------
    device
        Its CUDA ordinal.
    total_bytes
        The card's memory.
    context_bytes
        What the process holds besides the allocator (the CUDA context); `device_memory.context_bytes` may be
        changed later.
    settings
        PYTORCH_CUDA_ALLOC_CONF; PyTorch's defaults if None.
    clock
        The simulated streams, which say when a block used on several of them is free. By default every stream has
        always finished.
    """

    __slots__ = ("_events", "_gate", "_large_lists", "_max_split_stat", "_null", "_queue", "_small_lists", "_spare", "_special")

    def __init__(
        self,
        device: int,
        total_bytes: int,
        *,
        context_bytes: int = 0,
        settings: AllocatorSettings | None = None,
        clock: StreamClock | None = None,
    ) -> None:
        super().__init__(device, total_bytes, context_bytes, settings or AllocatorSettings())
        self._gate: list[None] = [None]
        self._queue: deque[Block] = deque()
        self._spare: list[Block] = []
        self._events = EventQueue(clock or FinishedClock())
        self._small_lists = self.small.lists
        self._large_lists = self.large.lists
        self._null = Segment(self.small.of(0), self.counters.sink)
        # DeviceStats::max_split_size is set once, in the constructor, and prints "unlimited" as -1.
        limit = self.settings.max_split_bytes
        self._max_split_stat = -1 if limit == UNLIMITED else limit
        if self.settings.per_process_memory_fraction < 1.0:
            self.allowed_bytes = int(self.settings.per_process_memory_fraction * total_bytes)
        self._special = False
        self._refresh_special()

    # ---------------------------------------------------------------- memory

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId | None = None) -> Block:
        """Take memory on a stream; zero bytes get a null block at address 0.

        Raises
        ------
        DeviceOutOfMemory
            If the device cannot hold another segment, after all that PyTorch tries.
        """
        if nbytes <= 0:
            return self._null_block(nbytes, stream)
        gate = self._gate
        try:
            del gate[0]
        except IndexError:
            self._wait()
        try:
            queue = self._queue
            while queue:
                self._settle(queue.popleft())
            special = self._special
            if special or pool is not None:
                free_list, size, i, least_rest = self._prepare(nbytes, stream, pool)
                entries = free_list.entries
            else:
                size = (nbytes + 511) & -512  # round_size
                try:
                    free_list = (self._small_lists if size <= 1048576 else self._large_lists)[stream]
                except KeyError:
                    free_list = self._open(size, stream)
                entries = free_list.entries
                # Best fit (get_free_block). The first entry is the smallest: if it fits, it is the one.
                i = 0
                if not entries or entries[0][0] < size:
                    i = bisect_left(entries, (size,))
                    if i == len(entries):
                        i = free_list.index(self.grow(free_list, size, nbytes))
                least_rest = free_list.least_rest
            have, address, block = entries[i]
            before = block.prev
            rest = have - size
            if rest >= least_rest:
                # alloc_found_block, split: the low part is handed out, the block itself stays free with the rest.
                segment = block.segment
                if self._spare:
                    given = self._spare.pop()
                    given.address = address
                    given.size = size
                    given.requested = nbytes
                    given.free_list = free_list
                    given.prev = before
                    given.next = block
                    given.segment = segment
                    given.state = ALLOCATED
                else:
                    given = Block(address, size, nbytes, free_list, before, block, segment)
                address += size
                entry = (rest, address, block)
                if i == 0 or entries[i - 1] < entry:
                    entries[i] = entry
                else:
                    del entries[i]
                    insort(entries, entry, 0, i)
                if before is not None:
                    before.next = given
                else:
                    segment.first = given
                if before is not None or block.next is not None:
                    level = segment.split_bytes
                    level.now -= size
                    level.freed += size
                else:
                    segment.split_blocks.add(1)
                    segment.split_bytes.add(rest)
                block.prev = given
                block.address = address
                block.size = rest
            else:
                del entries[i]
                given = block
                given.requested = nbytes
                given.state = ALLOCATED
                size = have
                if before is not None or block.next is not None:
                    block.segment.split_blocks.take(1)
                    block.segment.split_bytes.take(have)
            level = free_list.blocks
            level.now = now = level.now + 1
            if now > level.limit:
                level.new_high()
            level = free_list.bytes
            level.now = now = level.now + size
            if now > level.limit:
                level.new_high()
            level = free_list.requested
            level.now = now = level.now + nbytes
            if now > level.limit:
                level.new_high()
            if special:
                self._finish(given, block)
        finally:
            gate.append(None)
        return given

    def free(self, block: Block) -> None:
        """Give memory back. Never waits, and may be called from ``__del__`` at any moment."""
        if block.state == ALLOCATED and not self._special:
            block.state = QUEUED
            self._queue.append(block)
        else:
            self._free_unusual(block)

    def _settle(self, block: Block) -> None:
        """free: a block that was queued goes back to its pool."""
        free_list = block.free_list
        level = free_list.blocks
        level.now -= 1
        level.freed += 1
        size = block.size
        level = free_list.bytes
        level.now -= size
        level.freed += size
        self._merge(block, size, free_list)

    def _merge(self, block: Block, size: int, free_list: FreeList) -> None:
        """free_block: put a block back, as one with its free neighbours."""
        level = free_list.requested
        requested = block.requested
        level.now -= requested
        level.freed += requested
        entries = free_list.entries
        before, after = block.prev, block.next
        segment = block.segment
        block.state = FREE
        if after is not None and after.state == FREE:
            if before is not None and before.state == FREE:
                # [before block after] becomes before
                del entries[free_list.index(after)]
                i = free_list.index(before)
                before.size = new = before.size + size + after.size
                before.next = further = after.next
                if further is not None:
                    further.prev = before
                del entries[i]
                insort(entries, (new, before.address, before), i)
                # two split blocks become one, or none if the segment is whole again
                segment.split_blocks.take(1)
                if further is None and before.prev is None:
                    segment.split_blocks.take(1)
                    segment.split_bytes.take(new - size)
                else:
                    segment.split_bytes.add(size)
                return
            # [block after] becomes after; `before` is in use or there is none
            new = after.size + size
            address = block.address
            entry = (new, address, after)
            if entries[-1][2] is after:
                entries[-1] = entry
            else:
                i = free_list.index(after)
                if entries[i + 1] > entry:
                    entries[i] = entry
                else:
                    del entries[i]
                    insort(entries, entry, i)
            after.prev = before
            after.address = address
            after.size = new
            if before is not None:
                before.next = after
            else:
                segment.first = after
            whole = before is None and after.next is None
        elif before is not None and before.state == FREE:
            # [before block] becomes before
            i = free_list.index(before)
            before.size = new = before.size + size
            entry = (new, before.address, before)
            if i + 1 == len(entries) or entries[i + 1] > entry:
                entries[i] = entry
            else:
                del entries[i]
                insort(entries, entry, i)
            before.next = after
            if after is not None:
                after.prev = before
            whole = after is None and before.prev is None
        else:
            insort(entries, (size, block.address, block))
            if before is not None or after is not None:
                segment.split_blocks.add(1)
                segment.split_bytes.add(size)
            return
        if whole:
            segment.split_blocks.take(1)
            segment.split_bytes.take(new - size)
        else:
            level = segment.split_bytes
            level.now = now = level.now + size
            if now > level.limit:
                level.new_high()
        if getrefcount(block) == _ALONE:
            self._spare.append(block)

    def _open(self, size: int, stream: int) -> FreeList:
        """The first use of a stream."""
        return (self.small if size <= SMALL_LIMIT_BYTES else self.large).of(stream)
