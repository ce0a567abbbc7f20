"""Where an allocator's segments come from and go to: everything that asks the device.

This half is slow and rare; `allocator` holds the fast one. The order in which memory is sought is malloc's
and alloc_block's in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator import expandable_segments
from fakegpu_lab.hardware.allocator.blocks import Block, BlockPool, FreeList, PoolId, PrivatePool, Segment
from fakegpu_lab.hardware.allocator.device_memory import DeviceMemory
from fakegpu_lab.hardware.allocator.out_of_memory import DeviceOutOfMemory
from fakegpu_lab.hardware.allocator.settings import UNLIMITED, AllocatorSettings
from fakegpu_lab.hardware.allocator.statistics import DeviceCounters, change_stat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.hardware.allocator.history import Frames, History

_DEFAULT_POOL: PoolId = (0, 0)


class SegmentStore:
    """The segments of one device, its pools of free blocks, and the ways to get and release memory.

    Nothing here takes the allocator's lock: the caller holds it.
    """

    __slots__ = (
        "allowed_bytes",
        "context",
        "counters",
        "device",
        "device_memory",
        "history",
        "large",
        "private_pools",
        "segments",
        "settings",
        "small",
    )

    def __init__(self, device: int, total_bytes: int, context_bytes: int, settings: AllocatorSettings) -> None:
        self.device = device
        self.settings = settings
        self.device_memory = DeviceMemory(device, total_bytes, context_bytes)
        self.counters = DeviceCounters()
        self.small = BlockPool(is_small=True, counters=self.counters.small)
        self.large = BlockPool(is_small=False, counters=self.counters.large)
        self.private_pools: dict[PoolId, PrivatePool] = {}
        self.segments: dict[int, Segment] = {}
        self.allowed_bytes: int | None = None
        self.history: History | None = None
        self.context: Frames | None = None  # whose call this is, while a history is recorded

    def trace(self, action: str, address: int, size: int, block: Block, otherwise: Frames | None = None) -> None:
        """record_trace, with the frames of this call or else those remembered."""
        if self.history is not None:
            private = block.free_list.pool.private
            pool = private.id if private else _DEFAULT_POOL
            frames = self.context if self.context is not None else otherwise
            self.history.record(action, address, size, block.stream, pool, frames)

    def grow(self, free_list: FreeList, size: int, requested: int) -> Block:
        """A free block for `size` bytes that no cached block has room for.

        Raises
        ------
        DeviceOutOfMemory
            If there is none even after all cached segments were given back.
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
            self.counters.num_ooms += 1
            if self.history is not None:
                private = free_list.pool.private
                pool = private.id if private else _DEFAULT_POOL
                free = self.device_memory.free_bytes
                self.history.record("oom", free, size, free_list.stream, pool, self.context)
            raise self._out_of_memory(requested, segment)
        return block

    @property
    def collects_garbage(self) -> bool:
        """Whether garbage collection is on: it takes a threshold and a memory fraction."""
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

    def count_reserved(self, pool: BlockPool, change: int) -> None:
        """Count bytes got from the device, or given back if negative."""
        if change > 0:
            pool.counters.reserved.add(change)
        else:
            pool.counters.reserved.take(-change)
        if pool.private is not None:
            pool.private.reserved_bytes += change
            self.counters.count_private(pool.private.id, small=pool.is_small, change=change)

    def _release(self, block: Block) -> None:
        """release_block: give an unsplit free block's segment back (cudaFree)."""
        free_list = block.free_list
        self.counters.num_device_free += 1
        self.trace("segment_free", block.address, block.size, block, block.segment.frames)
        self.device_memory.free(block.address, block.size)
        free_list.remove(block)
        free_list.pool.counters.segments.take(1)
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
        """release_cached_blocks: wait for pending blocks, then give back whatever is wholly free."""
        self.finish_pending()
        self._release_pools((self.large, self.small))
        for pool_id, private in list(self.private_pools.items()):
            if private.users == 0:  # graph_pools_freeable
                self._release_pools((private.small, private.large))
                if private.reserved_bytes == 0:
                    del self.private_pools[pool_id]

    def finish_pending(self) -> None:
        """synchronize_and_free_events; the allocator knows how."""
        raise NotImplementedError

    def _release_oversize(self, free_list: FreeList, size: int) -> bool:
        """release_available_cached_blocks: just enough of the blocks that may not be split."""
        limit = self.settings.max_split_bytes
        if limit == UNLIMITED:
            return False
        wanted = max(size, limit)
        for have, _, block in free_list.entries:
            if have >= wanted:
                self._release(block)
                return True
        released = 0
        for have, _, block in reversed(list(free_list.entries)):
            if released >= wanted or have < limit:
                break
            released += have
            self._release(block)
        return released >= wanted

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
            # older than the average goes, even past the target: collecting often is worse
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
        from fakegpu_lab.hardware.allocator.history import describe_segments

        return {
            "segments": describe_segments(self.device, list(self.segments.values())),
            "allocator_settings": self.settings.as_snapshot(),
            "external_annotations": [],
        }
