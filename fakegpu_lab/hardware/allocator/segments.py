"""Segments: taking memory from the device, and giving it back.

This part is slow and runs rarely; `caching_allocator` has the fast one. Its attempts have the order of malloc and
alloc_block in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator import expandable_segments
from fakegpu_lab.hardware.allocator.blocks import Block, Segment
from fakegpu_lab.hardware.allocator.history import describe_segments
from fakegpu_lab.hardware.allocator.oom_figures import DeviceOutOfMemory
from fakegpu_lab.hardware.allocator.settings import UNLIMITED
from fakegpu_lab.hardware.allocator.state import AllocatorState
from fakegpu_lab.hardware.allocator.statistics import change_stat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.hardware.allocator.blocks import BlockPool, FreeList, PrivatePool


class SegmentStore(AllocatorState):
    """Adds to the state the ways to get and release segments.

    Nothing here takes the allocator's lock: the caller holds it.
    """

    __slots__ = ()

    def grow(self, free_list: FreeList, size: int, requested: int) -> Block:
        """A free block for `size` bytes that no cached block has room for.

        Raises
        ------
        DeviceOutOfMemory
            If the device has no room even after all cached segments were given back.
        """
        segment = self.settings.segment_size(size)
        if self.collects_garbage:
            self._collect_garbage()
        if self.settings.throw_on_cudamalloc_oom and self._over_limit(segment):
            # Refused at once, with no retry (pytorch/pytorch#179473).
            self.counters.num_oom_rejections += 1
            raise self._out_of_memory(requested, segment)
        block = self._from_device(free_list, size, segment)
        if block is None and self._release_oversize(free_list, size):
            block = self._from_device(free_list, size, segment)
        if block is None:
            self.release_cached()
            self.counters.num_alloc_retries += 1
            block = self._from_device(free_list, size, segment)
        if block is None:
            block = self.last_resort(free_list, size)
        if block is None:
            self.counters.num_ooms += 1
            if self.history is not None:
                free = self.device_memory.free_bytes
                self.history.record("oom", free, size, free_list.stream, free_list.pool.id, self.context)
            raise self._out_of_memory(requested, segment)
        return block

    @property
    def collects_garbage(self) -> bool:
        """Whether garbage collection is on: it needs a threshold and a memory fraction."""
        return self.allowed_bytes is not None and self.settings.garbage_collection_threshold > 0.0

    def _over_limit(self, segment: int) -> bool:
        return self.allowed_bytes is not None and self.device_memory.reserved_bytes + segment > self.allowed_bytes

    def _from_device(self, free_list: FreeList, size: int, segment_bytes: int) -> Block | None:
        """alloc_block: a new segment, or new pages of an expandable one, as a free block."""
        if self._over_limit(segment_bytes):
            return None
        if self.settings.expandable_segments:
            return expandable_segments.expand(self, free_list, size)
        address = self.device_memory.malloc(segment_bytes)
        if address is None:
            return None
        segment = Segment(free_list, free_list.pool.counters)
        block = Block(address, segment_bytes, 0, None, None, segment)
        segment.first = block
        segment.frames = self.context
        self.segments[address] = segment
        free_list.add(block)
        free_list.pool.counters.segments.add(1)
        self.count_reserved(free_list.pool, segment_bytes)
        self.counters.num_device_alloc += 1
        if segment_bytes >= self.settings.max_split_bytes:
            change_stat(self.counters.oversize_segments, 1)
        self.trace("segment_alloc", address, segment_bytes, block)
        return block

    def _release(self, block: Block) -> None:
        """release_block: give the segment of an unsplit free block back (cudaFree)."""
        free_list = block.free_list
        self.counters.num_device_free += 1
        self.trace("segment_free", block.address, block.size, block, block.segment.frames)
        self.device_memory.free(block.address, block.size)
        free_list.remove(block)
        free_list.pool.counters.segments.subtract(1)
        self.count_reserved(free_list.pool, -block.size)
        if block.size >= self.settings.max_split_bytes:
            change_stat(self.counters.oversize_segments, -1)
        del self.segments[block.address]

    def _release_pools(self, pools: Iterable[BlockPool]) -> None:
        """release_blocks: every unsplit free block, and every whole free page of expandable segments."""
        for pool in pools:
            expandable = []
            for block in pool.free_blocks():
                if block.segment.expandable is not None:
                    expandable.append(block)  # unmapping changes the lists
                elif not block.is_split():
                    self._release(block)
            for block in expandable:
                expandable_segments.unmap(self, block)

    def release_cached(self) -> None:
        """release_cached_blocks: wait for pending blocks, then give back every segment that is wholly free."""
        self.finish_pending()
        self._release_pools((self.large, self.small))
        for private in list(self.private_pools.values()):
            self.release_pool(private)

    def release_pool(self, private: PrivatePool) -> None:
        """Give back every segment of a private pool that is wholly free, if nobody holds the pool any more."""
        if private.users == 0:  # graph_pools_freeable
            self._release_pools((private.small, private.large))
            if private.reserved_bytes == 0:
                del self.private_pools[private.id]

    def finish_pending(self) -> None:
        """synchronize_and_free_events; `slow_path` has it."""
        raise NotImplementedError

    def last_resort(self, free_list: FreeList, size: int) -> Block | None:
        """A free block of a pool that is there for this (try_mempool_fallback); `slow_path` has it."""
        raise NotImplementedError

    def _release_oversize(self, free_list: FreeList, size: int) -> bool:
        """release_available_cached_blocks: just enough of the blocks that must not be split."""
        limit = self.settings.max_split_bytes
        if limit == UNLIMITED:
            return False
        needed = max(size, limit)
        for block_size, _, block in free_list.entries:
            if block_size >= needed:
                self._release(block)
                return True
        released = 0
        for block_size, _, block in reversed(list(free_list.entries)):
            if released >= needed or block_size < limit:
                break
            released += block_size
            self._release(block)
        return released >= needed

    def _collect_garbage(self) -> None:
        """garbage_collect_cached_blocks: release old unsplit large blocks until below the threshold."""
        threshold = int(self.settings.garbage_collection_threshold * (self.allowed_bytes or 0))
        reserved = self.device_memory.reserved_bytes
        if reserved <= threshold:
            return
        target, reclaimed = reserved - threshold, 0
        calls = self.large.gc_calls
        candidates = [block for block in self.large.free_blocks() if not block.is_split()]
        age = sum(calls - block.gc_base for block in candidates)
        freed = True
        while candidates and freed and reclaimed < target:
            # Releases all blocks older than the average, even past the target: collecting often costs more.
            limit = age / len(candidates)
            old = [block for block in candidates if calls - block.gc_base >= limit]
            freed = bool(old)
            for block in old:
                reclaimed += block.size
                age -= calls - block.gc_base
                candidates.remove(block)
                self._release(block)

    def _out_of_memory(self, requested: int, segment: int) -> DeviceOutOfMemory:
        counters, memory = self.counters, self.device_memory
        allocated = counters.small.bytes.now + counters.large.bytes.now
        private = sum(pool.free_bytes() for pool in self.private_pools.values())
        return DeviceOutOfMemory(
            device=self.device,
            requested=requested,
            segment=segment,
            total=memory.total_bytes,
            free=memory.free_bytes,
            in_use=memory.in_use_bytes,
            allowed=self.allowed_bytes,
            allocated=allocated + private,
            private_pools=private,
            reserved_unallocated=memory.reserved_bytes - allocated - private,
        )

    def describe(self) -> dict[str, Any]:
        """The parts of a snapshot that are not history."""
        return {
            "segments": describe_segments(self.device, list(self.segments.values())),
            "allocator_settings": self.settings.as_snapshot(),
            "external_annotations": [],
        }
