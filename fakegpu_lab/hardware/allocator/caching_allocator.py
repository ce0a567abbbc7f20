"""PyTorch's caching allocator in pure Python.

>>> gpu = CachingAllocator(0, 16 * 2**30)
>>> one = gpu.malloc(1)
>>> one.size, gpu.allocated_bytes, gpu.reserved_bytes
(512, 512, 2097152)
>>> gpu.free(one)
>>> gpu.empty_cache()
>>> gpu.reserved_bytes
0

It does what DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp does, down to which block is taken and what is
counted; comments name the function there. `malloc` and `free` are on the path of every simulated op, so the usual case
is written out in one piece, the counting included (`Level.add`). While anything unusual is in use (a recorded history,
blocks shared between streams, settings other than the defaults), `_slow` is true: `malloc` goes through `prepare` and
`finish` around the same steps, and `free` through `slow_free`.

Expandable segments are one range of addresses for each stream and pool, mapped page by page as needed (Note [Expandable
Segments] in CUDACachingAllocator.cpp). The last block of such a segment is unmapped, unless the whole range is mapped.

`free` is called from ``__del__``, which the garbage collector may run in the middle of `malloc`, on this thread or on
another one. So `free` only queues the block, and the next call that reads the allocator puts it back first. The result
is the same, `free` never waits for a lock, and no list changes during a `malloc`.
"""

from __future__ import annotations

import sys
import time
from bisect import bisect_left, insort
from collections import deque
from contextlib import contextmanager, suppress
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator.blocks import (
    ALLOCATED,
    DEFAULT_POOL,
    FREE,
    NULL,
    PENDING,
    QUEUED,
    SHARED,
    UNMAPPED,
    Block,
    BlockPool,
    FreeList,
    PoolId,
    PrivatePool,
    Segment,
)
from fakegpu_lab.hardware.allocator.device_memory import DeviceMemory, DeviceOutOfMemory, ExpandableRange
from fakegpu_lab.hardware.allocator.history import ALL, STATE, History, describe_segments, merge_snapshots
from fakegpu_lab.hardware.allocator.record_stream import EventQueue, FinishedClock, StreamClock
from fakegpu_lab.hardware.allocator.settings import (
    MIN_BLOCK_BYTES,
    SMALL_LIMIT_BYTES,
    SMALL_SEGMENT_BYTES,
    UNLIMITED,
    AllocatorSettings,
)
from fakegpu_lab.hardware.allocator.statistics import DeviceCounters, change_stat
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from fakegpu_lab.hardware.allocator.history import Frames

__all__ = ["AllocatorSettings", "Block", "CachingAllocator", "DeviceOutOfMemory", "StreamClock", "merge_snapshots"]


def _references(thing: object) -> int:
    return getrefcount(thing)


# How many references a function sees to an argument that nothing else holds; it differs between Python versions.
UNSHARED = _references(object())


class CachingAllocator:
    """The memory of one device.

    Parameters
    ----------
    device
        Its CUDA ordinal.
    total_bytes
        The card's memory.
    context_bytes
        What the process holds outside the allocator (the CUDA context); `device_memory.context_bytes` may change
        later.
    settings
        PYTORCH_CUDA_ALLOC_CONF; PyTorch's defaults if None.
    clock
        The simulated streams: they decide when a block used on several of them is free. By default, every stream has
        always finished.

    Attributes
    ----------
    segments
        By address.
    small, large
        The free blocks of the default pool.
    private_pools
        The pools of CUDA graphs and torch.cuda.MemPool.
    allowed_bytes
        The limit of set_per_process_memory_fraction; None if it was never set.
    history
        None unless a history is recorded.
    context
        While a history is recorded, the stack frames of the current call.
    """

    __slots__ = (
        "_captures",
        "_diversions",
        "_events",
        "_expandable_ever",
        "_gate",
        "_large_lists",
        "_max_split_stat",
        "_queue",
        "_shared",
        "_slow",
        "_small_lists",
        "_spare",
        "_uncached",
        "allowed_bytes",
        "caching",
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

    def __init__(
        self,
        device: int,
        total_bytes: int,
        *,
        context_bytes: int = 0,
        settings: AllocatorSettings | None = None,
        clock: StreamClock | None = None,
    ) -> None:
        self.device = device
        self.settings = settings or AllocatorSettings()
        self.device_memory = DeviceMemory(device, total_bytes, context_bytes)
        self.counters = DeviceCounters()
        self.small = BlockPool(is_small=True, counters=self.counters.small)
        self.large = BlockPool(is_small=False, counters=self.counters.large)
        self.private_pools: dict[PoolId, PrivatePool] = {}
        self.segments: dict[int, Segment] = {}
        self.allowed_bytes: int | None = None
        self.history: History | None = None
        self.context: Frames | None = None
        # A lock: the thread that removes the one element holds it. `del gate[0]` cannot be interrupted between taking
        # it and entering the try block that puts it back; `lock.acquire()` can, by a notebook's Ctrl-C.
        self._gate: list[None] = [None]
        self._queue: deque[Block] = deque()  # freed blocks; they are put back before the allocator is next read
        self._spare: list[Block] = []  # Block objects to use again: making one costs a sixth of a malloc
        self._events = EventQueue(clock or FinishedClock())
        self._captures: dict[int, PoolId] = {}  # the pools that serve streams under capture
        self._diversions: list[tuple[PoolId, Callable[[int], bool]]] = []  # `divert`
        self._shared = 0  # blocks that record_stream was called on
        self._expandable_ever = False
        self.caching = True
        self._uncached: dict[int, int] = {}  # the bytes at each address that was taken while caching was off
        self._small_lists = self.small.lists
        self._large_lists = self.large.lists
        # DeviceStats::max_split_size is set once, in the constructor, and prints "unlimited" as -1.
        limit = self.settings.max_split_bytes
        self._max_split_stat = -1 if limit == UNLIMITED else limit
        if self.settings.per_process_memory_fraction < 1.0:
            self.allowed_bytes = int(self.settings.per_process_memory_fraction * total_bytes)
        self._slow = False
        self._choose_path()

    def malloc(self, nbytes: int, stream: int = 0, pool: PoolId | None = None) -> Block:
        """Allocate memory on a stream; zero bytes get a null block at address 0.

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
            self._wait_for_gate()
        try:
            queue = self._queue
            slow = self._slow
            if slow:
                self._drain()
                if not self.caching:
                    return self._uncached_block(nbytes, stream)
            elif queue:
                if len(queue) == 1 and pool is None:
                    block = queue[0]
                    if block.size == (nbytes + 511) & -512 and self._reuse(block, nbytes, stream):
                        queue.popleft()
                        return block
                while queue:
                    self._put_back(queue.popleft())
            if slow or pool is not None:
                free_list, size, i, min_remainder = self.prepare(nbytes, stream, pool)
                entries = free_list.entries
                found_size, address, block = entries[i]
            else:
                size = (nbytes + 511) & -512  # round_size
                try:
                    free_list = (self._small_lists if size <= 1048576 else self._large_lists)[stream]
                except KeyError:
                    free_list = self.list_for(size, stream)
                entries = free_list.entries
                min_remainder = free_list.min_remainder
                # Best fit (get_free_block). The first entry is the smallest: if it fits, it is the one.
                i = 0
                try:
                    found_size, address, block = entries[0]
                except IndexError:
                    found_size = 0
                if found_size < size:
                    i = bisect_left(entries, (size,))
                    if i == len(entries):
                        i = free_list.index(self.grow(free_list, size, nbytes))
                    found_size, address, block = entries[i]
            before = block.prev
            remainder = found_size - size
            if remainder >= min_remainder:
                # alloc_found_block, split: the low part is handed out, the block itself stays free with the remainder.
                segment = block.segment
                if self._spare:  # what Block() does, written out
                    given = self._spare.pop()
                    given.address = address
                    given.size = size
                    given.requested = nbytes
                    given.prev = before
                    given.next = block
                    given.segment = segment
                    given.state = ALLOCATED
                else:
                    given = Block(address, size, nbytes, before, block, segment)
                address += size
                entry = (remainder, address, block)
                if i == 0 or entries[i - 1] < entry:
                    entries[i] = entry
                else:
                    del entries[i]
                    insort(entries, entry, 0, i)
                if before is not None:
                    before.next = given
                    segment.split_bytes.fallen += size
                else:
                    segment.first = given
                    if block.next is not None:
                        segment.split_bytes.fallen += size
                    else:
                        level = segment.split_blocks
                        level.risen = now = level.risen + 1
                        if now - level.fallen > level.limit:
                            level.new_high()
                        level = segment.split_bytes
                        level.risen = now = level.risen + remainder
                        if now - level.fallen > level.limit:
                            level.new_high()
                block.prev = given
                block.address = address
                block.size = remainder
            else:
                del entries[i]
                given = block
                given.requested = nbytes
                given.state = ALLOCATED
                size = found_size
                if before is not None or block.next is not None:
                    segment = block.segment
                    segment.split_blocks.fallen += 1
                    segment.split_bytes.fallen += found_size
            level = free_list.blocks
            level.risen = now = level.risen + 1
            if now - level.fallen > level.limit:
                level.new_high()
            level = free_list.bytes
            level.risen = now = level.risen + size
            if now - level.fallen > level.limit:
                level.new_high()
            level = free_list.requested
            level.risen = now = level.risen + nbytes
            if now - level.fallen > level.limit:
                level.new_high()
            if slow:
                self.finish(given, block)
        finally:
            gate.append(None)
        return given

    def free(self, block: Block) -> None:
        """Free memory. Never waits; ``__del__`` may call it at any moment."""
        if block.state == ALLOCATED and not self._slow:
            block.state = QUEUED
            self._queue.append(block)
        else:
            self.slow_free(block)

    def _put_back(self, block: Block) -> None:
        """free_block: put a block into its free list, merged with its free neighbours."""
        segment = block.segment
        free_list = segment.free_list
        size = block.size
        free_list.blocks.fallen += 1
        free_list.bytes.fallen += size
        free_list.requested.fallen += block.requested
        entries = free_list.entries
        before = block.prev
        after = block.next
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
                # Two split blocks become one, or none if the segment is whole again.
                segment.split_blocks.subtract(1)
                if further is None and before.prev is None:
                    segment.split_blocks.subtract(1)
                    segment.split_bytes.subtract(new - size)
                else:
                    segment.split_bytes.add(size)
                return
            # [block after] becomes after; `before` is in use or None
            new = after.size + size
            address = block.address
            entry = (new, address, after)
            if entries[-1][2] is after:
                entries[-1] = entry
            else:
                i = 0 if entries[0][2] is after else bisect_left(entries, (after.size, after.address))
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
                if after.next is None:
                    segment.split_blocks.fallen += 1
                    segment.split_bytes.fallen += new - size
                    if getrefcount(block) == UNSHARED:
                        self._spare.append(block)
                    return
        elif before is not None and before.state == FREE:
            # [before block] becomes before
            i = bisect_left(entries, (before.size, before.address))
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
            elif before.prev is None:
                segment.split_blocks.fallen += 1
                segment.split_bytes.fallen += new - size
                return
        else:
            block.state = FREE
            insort(entries, (size, block.address, block))
            if before is not None or after is not None:
                level = segment.split_blocks
                level.risen = now = level.risen + 1
                if now - level.fallen > level.limit:
                    level.new_high()
                level = segment.split_bytes
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
            return
        level = segment.split_bytes
        level.risen = now = level.risen + size
        if now - level.fallen > level.limit:
            level.new_high()
        if getrefcount(block) == UNSHARED:
            self._spare.append(block)

    def _reuse(self, block: Block, nbytes: int, stream: int) -> bool:
        """Give the block freed last to a malloc of the same size, if best fit would choose it; else return False.

        A loop that makes and drops one tensor does this at every step. The counters end up as if the block had been put
        back and taken again; unclear cases are left to that way. Like malloc, this is on the path of every op, so the
        counting is written out.
        """
        segment = block.segment
        free_list = segment.free_list
        size = block.size
        if free_list is not (self._small_lists if size <= 1048576 else self._large_lists).get(stream):
            return False
        entries = free_list.entries
        before = block.prev
        after = block.next
        if before is not None and before.state == FREE:
            return False
        # The queue, `malloc` and the neighbours hold the block. If anything else does, that handle could be freed a
        # second time, which must stay an error.
        if getrefcount(block) > UNSHARED + 3 + (after is not None):
            return False
        if after is not None and after.state == FREE:
            # It would merge with `after` and be split off again, if no other free block fits better.
            remainder = after.size
            if remainder < free_list.min_remainder or entries[0][2] is not after:
                return False
            if len(entries) > 1 and entries[1] < (remainder + size, block.address):
                return False
            level = segment.split_bytes
            if before is None and after.next is None:
                segment.split_blocks.turned += 1
                level.turned += remainder
            else:
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += size
        else:
            # It would be a hole of exactly this size.
            i = bisect_left(entries, (size,))
            if i < len(entries) and entries[i] < (size, block.address):
                return False
            if before is not None or after is not None:
                level = segment.split_blocks
                level.risen = now = level.risen + 1
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += 1
                level = segment.split_bytes
                level.risen = now = level.risen + size
                if now - level.fallen > level.limit:
                    level.new_high()
                level.fallen += size
        free_list.blocks.turned += 1
        free_list.bytes.turned += size
        level = free_list.requested
        if nbytes == block.requested:
            level.turned += nbytes
        else:
            level.fallen += block.requested
            level.risen = now = level.risen + nbytes
            if now - level.fallen > level.limit:
                level.new_high()
            block.requested = nbytes
        block.state = ALLOCATED
        return True

    # ---------- what settings other than the defaults add to malloc and free

    def prepare(self, nbytes: int, stream: int, pool: PoolId | None) -> tuple[FreeList, int, int, int]:
        """Go through malloc as far as finding a block.

        Returns the free list, the rounded size, the block's index in the list, and how many bytes must remain for it to
        be split.
        """
        settings = self.settings
        self.context = self.history.gather(STATE) if self.history else None
        for block in self._events.finished():  # process_events
            self._complete(block)
        size = settings.round_size(nbytes)
        pool = pool or self._captures.get(stream) or (self._diverted(stream) if self._diversions else None)
        free_list = self.list_for(size, stream, pool)
        found = self._find(free_list, size)
        if found is None:
            grown = self.grow(free_list, size, nbytes)
            free_list, found = grown.free_list, grown.free_list.index(grown)
        # should_split
        if free_list.pool.is_small or settings.expandable_segments:
            min_remainder = MIN_BLOCK_BYTES
        else:
            min_remainder = SMALL_LIMIT_BYTES + 1 if size < settings.max_split_bytes else UNLIMITED
        return free_list, size, found, min_remainder

    def finish(self, given: Block, found: Block) -> None:
        """End a malloc: `given` was split from `found`, or is the same block."""
        if found is not given:
            found.gc_base = found.free_list.pool.gc_calls
        if given.size >= self.settings.max_split_bytes:
            change_stat(self.counters.oversize_allocations, 1)
        if self._events:
            self.counters.note_active_peak()
        if self.history is not None:
            given.frames = self.context or []
            self.trace("alloc", given.address, given.requested, given)
            self.context = None
        self._choose_path()

    def slow_free(self, block: Block) -> None:
        """Free a block on the slow path; like the fast one, this never waits."""
        if block.state == NULL:
            return
        if block.state not in (ALLOCATED, SHARED):
            raise RuntimeError(f"invalid device pointer: {block.address:#x}")
        block.state = QUEUED
        self._queue.append(block)
        self._drain_if_idle()

    def _drain(self) -> None:
        """Put back the blocks freed since this was last called."""
        while self._queue:
            block = self._queue.popleft()
            if self._slow:
                self._slow_drain(block)
            else:
                self._put_back(block)

    def _slow_drain(self, block: Block) -> None:
        """DeviceCachingAllocator::free: put one block back, or let it wait for other streams."""
        if block.address in self._uncached:
            self._free_uncached(block)
            return
        uses = getattr(block, "uses", None)
        self.context = self.history.gather(ALL) if self.history else None
        remembered = getattr(block, "frames", None) if self.history else None
        self.trace("free_requested", block.address, block.requested, block, remembered)
        if block.size >= self.settings.max_split_bytes:
            change_stat(self.counters.oversize_allocations, -1)
        if uses:
            block.state = PENDING
            free_list, counters = block.free_list, block.free_list.pool.counters
            free_list.blocks.subtract(1)
            free_list.bytes.subtract(block.size)
            counters.pending.add(1)
            counters.pending_bytes.add(block.size)
            self._events.add(block)
            block.uses = set()
            self._shared -= 1
        else:
            self._slow_put_back(block)
        self.context = None

    def _complete(self, block: Block) -> None:
        """End a free that had to wait for other streams."""
        free_list, counters = block.free_list, block.free_list.pool.counters
        counters.pending.subtract(1)
        counters.pending_bytes.subtract(block.size)
        free_list.blocks.fallen -= 1  # counted when it was freed, and again by _put_back
        free_list.bytes.fallen -= block.size
        self._slow_put_back(block)

    def _slow_put_back(self, block: Block) -> None:
        remembered = getattr(block, "frames", None) if self.history else None
        self.trace("free_completed", block.address, block.requested, block, remembered)
        block.frames = []
        merged = block
        for neighbour in (block.next, block.prev):
            if neighbour is not None and neighbour.state == FREE:
                merged = neighbour
        self._put_back(block)
        merged.gc_base = merged.free_list.pool.gc_calls

    def _choose_path(self) -> None:
        """Set `_slow`: whether anything in use needs the slow path."""
        settings = self.settings
        self._expandable_ever = self._expandable_ever or settings.expandable_segments
        was_slow = self._slow
        self._slow = bool(
            self.history is not None
            or not self.caching
            or self._uncached
            or self._captures
            or self._diversions
            or self._shared
            or self._events
            or self._expandable_ever
            or settings.max_split_bytes != UNLIMITED
            or max(settings.roundup_power2_divisions) > 1
            or self.collects_garbage
        )
        if self._slow and not was_slow:
            # The blocks' ages count from here: the fast path does not keep them.
            for block in self.large.free_blocks():
                block.gc_base = self.large.gc_calls

    def _null_block(self, nbytes: int, stream: int) -> Block:
        """PyTorch's answer to a request of zero bytes: a null pointer; nothing is counted."""
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        block = Block(0, 0, 0, None, None, Segment(self.small.free_list(stream), self.counters.sink))
        block.state = NULL
        return block

    # ------------------------------------------------------------- searching

    def list_for(self, size: int, stream: int, pool: PoolId | None = None) -> FreeList:
        """The free list that serves a size on a stream (get_pool)."""
        owner = self if pool is None or pool == DEFAULT_POOL else self._private_pool(pool)
        return (owner.small if size <= SMALL_LIMIT_BYTES else owner.large).free_list(stream)

    def _private_pool(self, pool: PoolId) -> PrivatePool:
        found = self.private_pools.get(pool)
        if found is None:
            found = PrivatePool(pool, self.counters.small, self.counters.large)
            self.private_pools[pool] = found
        return found

    def _diverted(self, stream: int) -> PoolId | None:
        """The pool that serves a request of this thread on a stream: that of the innermost `use_mem_pool`."""
        return next((pool for pool, applies in reversed(self._diversions) if applies(stream)), None)

    def _find(self, free_list: FreeList, size: int) -> int | None:
        """get_free_block, under any settings."""
        settings, entries = self.settings, free_list.entries
        if self.collects_garbage:
            free_list.pool.gc_calls += 1
        i = bisect_left(entries, (size,))
        if i == len(entries):
            return None
        if entries[i][2].segment.expandable is not None:
            if settings.expandable_segments:
                # The best fit is the block that grows to the smallest size.
                while (
                    i + 1 < len(entries)
                    and entries[i][2].segment.expandable is not None
                    and entries[i + 1][2].size_when_grown < entries[i][2].size_when_grown
                ):
                    i += 1
            else:  # the setting was turned off: such blocks are not used any more
                while i < len(entries) and entries[i][2].segment.expandable is not None:
                    i += 1
                if i == len(entries):
                    return None
        found_size, limit = entries[i][0], settings.max_split_bytes
        if size < limit <= found_size:
            return None  # a block that must not be split, for a request that is not large
        if size >= limit and found_size >= size + settings.max_non_split_rounding_bytes:
            return None  # too much would be wasted
        return i

    # ----------------- taking segments from the device, and giving them back

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
            return self._expand(free_list, size)
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
                self._unmap(block)

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
        """Wait for all streams, and put back the blocks that they used (synchronize_and_free_events)."""
        self._drain()
        self.counters.num_sync_all_streams += 1
        for block in self._events.wait():
            self._complete(block)

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

    def count_reserved(self, pool: BlockPool, change: int) -> None:
        """Count bytes taken from the device, or given back if negative."""
        if change > 0:
            pool.counters.reserved.add(change)
        else:
            pool.counters.reserved.subtract(-change)
        if pool.private is not None:
            pool.private.reserved_bytes += change
            self.counters.count_private(pool.private.id, small=pool.is_small, change=change)

    # --------------------------------------------------- expandable segments

    def _expand(self, free_list: FreeList, size: int) -> Block | None:
        """Return a free block of at least `size` bytes, with its pages mapped; None if memory is short.

        Pages mapped before memory ran out stay mapped, as in try_allocate_expandable_block.
        """
        candidate = self._expandable_block(free_list, size)
        if candidate.state == UNMAPPED and not self._map(candidate, min(candidate.size, size)):
            return None
        while candidate.size < size:
            # A free block, followed by an unmapped one: mapping merges the two.
            following = candidate.next
            assert following is not None
            if not self._map(following, min(size - candidate.size, following.size)):
                return None
            candidate = following
        return candidate

    def _expandable_block(self, free_list: FreeList, size: int) -> Block:
        """Return the block at the lowest address with room for `size` bytes, free or unmapped; else a new range."""
        for _, block in free_list.unmapped:
            start = block.prev if block.prev is not None and block.prev.state == FREE else block
            room, at = 0, start
            while at is not None and at.state in (FREE, UNMAPPED) and room < size:
                room += at.size
                at = at.next  # type: ignore[assignment]
            if room >= size:
                return start
        page = SMALL_SEGMENT_BYTES if free_list.pool.is_small else self.settings.large_segment_bytes
        expandable = ExpandableRange(self.device_memory, page)
        segment = Segment(free_list, self.counters.sink, expandable)
        block = Block(expandable.base, expandable.size, 0, None, None, segment)
        segment.first = block
        self.segments[expandable.base] = segment
        free_list.add_unmapped(block)
        return block

    def _map(self, block: Block, size: int) -> bool:
        expandable = block.segment.expandable
        assert expandable is not None
        address, mapped = expandable.pages_over(block.address, size)
        if not self.device_memory.map(mapped):
            return False
        free_list = block.free_list
        free_list.remove_unmapped(block)
        if mapped < block.size:
            rest = Block(address + mapped, block.size - mapped, 0, block, block.next, block.segment)
            _link(block, rest)
            free_list.add_unmapped(rest)
            block.size = mapped
        if block.segment.frames is None:
            block.segment.frames = self.context
        block.state = FREE
        _absorb_neighbours(block, FREE)
        free_list.add(block)
        self.count_reserved(free_list.pool, mapped)
        self.counters.num_device_alloc += 1
        self.trace("segment_map", address, mapped, block)
        return True

    def _unmap(self, block: Block) -> None:
        """Give back the whole pages inside a free block, and the range itself once no page of it is mapped."""
        expandable = block.segment.expandable
        assert expandable is not None
        address, unmapped = expandable.pages_inside(block.address, block.size)
        if not unmapped:
            return
        free_list, segment = block.free_list, block.segment
        free_list.remove(block)
        before = address - block.address
        after = block.size - before - unmapped
        if before:
            head = Block(block.address, before, 0, block.prev, block, segment)
            if block.prev is None:
                segment.first = head
            else:
                block.prev.next = head
            block.prev = head
            free_list.add(head)
        if after:
            tail = Block(address + unmapped, after, 0, block, block.next, segment)
            _link(block, tail)
            free_list.add(tail)
        block.address, block.size, block.state = address, unmapped, UNMAPPED
        _absorb_neighbours(block, UNMAPPED)
        free_list.add_unmapped(block)
        self.device_memory.unmap(unmapped)
        self.count_reserved(free_list.pool, -unmapped)
        self.counters.num_device_free += 1
        self.trace("segment_unmap", address, unmapped, block, segment.frames)
        if not block.is_split():
            free_list.remove_unmapped(block)
            del self.segments[expandable.base]

    # ------------------------------------------------------- without caching

    def _uncached_block(self, nbytes: int, stream: int) -> Block:
        """uncached_allocate: memory that cudaMalloc gives for this request alone, and that no figure of torch's counts.

        Two simplifications: a card gives memory out in pages, and torch raises "CUDA error: out of memory".
        """
        address = self.device_memory.malloc(nbytes)
        if address is None:
            raise self._out_of_memory(nbytes, nbytes)
        self._hold_outside(nbytes)
        self._uncached[address] = nbytes
        block = Block(address, nbytes, nbytes, None, None, Segment(self.small.free_list(stream), self.counters.sink))
        block.state = ALLOCATED
        return block

    def _free_uncached(self, block: Block) -> None:
        """uncached_delete: cudaFree."""
        nbytes = self._uncached.pop(block.address)
        self._hold_outside(-nbytes)
        self.device_memory.free(block.address, nbytes)
        block.state = FREE
        self._choose_path()

    def _hold_outside(self, nbytes: int) -> None:
        """Count bytes of cudaMalloc's as the process's own instead of the allocator's."""
        self.device_memory.reserved_bytes -= nbytes
        self.device_memory.context_bytes += nbytes

    # -------------------------------------------- reading: torch.cuda.memory

    @property
    def allocated_bytes(self) -> int:
        """torch.cuda.memory_allocated."""
        self._drain_if_idle()
        return self.counters.small.bytes.now + self.counters.large.bytes.now

    @property
    def max_allocated_bytes(self) -> int:
        """torch.cuda.max_memory_allocated."""
        return self.counters.peak("bytes")

    @property
    def reserved_bytes(self) -> int:
        """torch.cuda.memory_reserved."""
        return self.device_memory.reserved_bytes

    @property
    def max_reserved_bytes(self) -> int:
        """torch.cuda.max_memory_reserved."""
        return self.counters.peak("reserved")

    @property
    def memory_fraction(self) -> float:
        """torch.cuda.get_per_process_memory_fraction."""
        total = self.device_memory.total_bytes
        return 1.0 if self.allowed_bytes is None else self.allowed_bytes / total

    def memory_info(self) -> tuple[int, int]:
        """(free, total) in bytes, as cudaMemGetInfo returns them."""
        return self.device_memory.free_bytes, self.device_memory.total_bytes

    def stats(self) -> dict[str, object]:
        """What torch._C._cuda_memoryStats returns."""
        with self._locked():
            return self.counters.as_dict(self._max_split_stat)

    def snapshot(self, *, include_traces: bool = True) -> dict[str, Any]:
        """What torch._C._cuda_memorySnapshot returns, for this device alone (see `merge_snapshots`)."""
        with self._locked():
            traces: list[list[dict[str, Any]]] = [[] for _ in range(self.device + 1)]
            if self.history is not None and include_traces:
                traces[self.device] = self.history.entries()
            snapshot = self.describe() | {"device_traces": traces}
            if self.history is not None:  # after the traces were read, as in NativeCachingAllocator::snapshot
                active = sum(segment["active_size"] for segment in snapshot["segments"])
                self.history.record("snapshot", 0, active, 0, (0, 0), None)
            return snapshot

    def describe(self) -> dict[str, Any]:
        """The parts of a snapshot that are not history."""
        return {
            "segments": describe_segments(self.device, list(self.segments.values())),
            "allocator_settings": self.settings.as_snapshot(),
            "external_annotations": [],
        }

    def in_use(self) -> list[tuple[int, int]]:
        """The blocks that tensors hold: (address, bytes)."""
        return [(block.address, block.size) for block in self.blocks_in_use()]

    def blocks_in_use(self) -> list[Block]:
        """The blocks that tensors hold."""
        with self._locked():
            blocks = (block for segment in self.segments.values() for block in segment.blocks())
            return [block for block in blocks if block.state in (ALLOCATED, SHARED)]

    def trace(self, action: str, address: int, size: int, block: Block, default: Frames | None = None) -> None:
        """record_trace, with the frames of the current call, or else `default`."""
        if self.history is not None:
            frames = self.context if self.context is not None else default
            self.history.record(action, address, size, block.stream, block.free_list.pool.id, frames)

    # ------------------------------------------- changing: torch.cuda.memory

    def empty_cache(self) -> None:
        """Give every empty segment back to the device (torch.cuda.empty_cache)."""
        with self._locked():
            self.context = self.history.gather(ALL) if self.history else None
            self.release_cached()
            self.context = None
            self._choose_path()

    def reset_peak(self) -> None:
        """torch.cuda.reset_peak_memory_stats."""
        with self._locked():
            self.counters.reset_peak()

    def reset_accumulated(self) -> None:
        """torch.cuda.reset_accumulated_memory_stats."""
        with self._locked():
            self.counters.reset_accumulated()

    def set_memory_fraction(self, fraction: float) -> None:
        """torch.cuda.set_per_process_memory_fraction; 1.0 is a limit, too (set_fraction)."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"invalid fraction: {fraction}. Please set within [0, 1].")
        with self._locked():
            self.allowed_bytes = int(fraction * self.device_memory.total_bytes)
            self._choose_path()

    def configure(self, settings: AllocatorSettings) -> None:
        """Change the settings (torch.cuda.memory._set_allocator_settings)."""
        with self._locked():
            if settings.per_process_memory_fraction != self.settings.per_process_memory_fraction:
                self.allowed_bytes = int(settings.per_process_memory_fraction * self.device_memory.total_bytes)
            self.settings = settings
            self._choose_path()

    def record_stream(self, block: Block, stream: int) -> None:
        """Note that another stream uses the block, too: once freed, it waits until that stream has passed."""
        with self._locked():
            if block.state not in (ALLOCATED, SHARED, NULL):
                raise RuntimeError(f"invalid device pointer: {block.address:#x}")
            if stream == block.stream or block.state == NULL or block.address in self._uncached:
                return  # recordStream: of memory that the allocator did not cache, it knows nothing
            if block.state == ALLOCATED:
                block.state = SHARED
                block.uses = set()
                self._shared += 1
            block.uses.add(stream)
            self._choose_path()

    def enable_caching(self, enabled: bool) -> None:
        """Whether freed memory is kept for later requests (CUDACachingAllocator::enable)."""
        with self._locked():
            self.caching = enabled
            self._choose_path()

    def record_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        *,
        clear_history: bool = False,
        skip_actions: Sequence[str] = (),
        frames: Callable[[], Frames] | None = None,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        """torch.cuda.memory._record_memory_history.

        `frames` returns the caller's stack, outermost last, as {"filename", "line", "name"}; `now_us` returns the
        simulated time. Stopping (`enabled=None`) forgets the history and the frames of live blocks.
        """
        with self._locked():
            if enabled is None:
                self.history = None
                for segment in self.segments.values():
                    segment.frames = None
                    for block in segment.blocks():
                        block.frames = []
            else:
                history = self.history or History()
                history.configure(enabled, context, stacks, max_entries, clear_history, skip_actions, frames, now_us)
                self.history = history
            self._choose_path()

    # --------------------------------------------------------- private pools

    def serve_from(self, stream: int, pool: PoolId | None) -> None:
        """Serve a stream from a private pool, while a graph is captured on it; None ends that."""
        with self._locked():
            if pool is None:
                self._captures.pop(stream, None)
            else:
                self._captures[stream] = pool
            self._choose_path()

    def divert(self, pool: PoolId, applies: Callable[[int], bool]) -> None:
        """Serve requests from a private pool while `applies(stream)` is true of them (beginAllocateToPool)."""
        with self._locked():
            if any(pool == one for one, _ in self._diversions):
                raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
            self._diversions.append((pool, applies))
            self._choose_path()

    def end_diversion(self, pool: PoolId) -> None:
        """Undo `divert` (endAllocateToPool)."""
        with self._locked():
            found = next((one for one in self._diversions if one[0] == pool), None)
            if found is None:
                raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
            self._diversions.remove(found)
            self._choose_path()

    def hold_pool(self, pool: PoolId) -> None:
        """Add a user to a private pool, which is made if it is new (createOrIncrefPool)."""
        with self._locked():
            if pool in self.private_pools:
                self.private_pools[pool].users += 1
            else:
                self._private_pool(pool)

    def pool_users(self, pool: PoolId) -> int:
        """How many hold a private pool (getPoolUseCount)."""
        return self.private_pools[pool].users if pool in self.private_pools else 0

    def delete_pool(self, pool: PoolId) -> None:
        """Remove the MemPool object of a pool, and give its free segments back (MemPool::~MemPool).

        The object's finalizer calls this, which may run inside the allocator: then the segments stay cached.
        """
        if pool not in self.private_pools:
            return
        private = self.private_pools[pool]
        private.users -= 1
        try:
            del self._gate[0]
        except IndexError:
            return
        try:
            self.finish_pending()
            self.release_pool(private)
            self._choose_path()
        finally:
            self._gate.append(None)

    def drop_pool(self, pool: PoolId) -> None:
        """Remove a user of a private pool (releasePool); without users, its free segments can be given back.

        Takes no lock: a graph's finalizer calls this, which may run inside the allocator.
        """
        if pool in self.private_pools:
            self.private_pools[pool].users -= 1

    # --------------------------------------------------------------- locking

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, with every freed block put back."""
        try:
            del self._gate[0]
        except IndexError:
            self._wait_for_gate(entry=3)  # above this generator: contextlib's __enter__, then the `with` statement
        try:
            self._drain()
            yield
        finally:
            self._gate.append(None)

    def _drain_if_idle(self) -> None:
        if not self._queue:
            return
        try:
            del self._gate[0]
        except IndexError:
            return  # the thread inside, or the next call, will drain the queue
        try:
            self._drain()
        finally:
            self._gate.append(None)

    def _wait_for_gate(self, entry: int = 1) -> None:
        """Wait until another thread's call is over, and take the lock.

        A finalizer that allocates while its own thread is inside the allocator would wait forever. The stack shows this
        case: the allocator's frames stand above the method that needs the lock, which is `entry` frames up.
        """
        frame = sys._getframe(entry + 1)
        while frame is not None:
            if frame.f_code in _OWN_CODE and frame.f_locals.get("self") is self:
                raise RuntimeError("device memory was requested by code that ran inside the allocator")
            frame = frame.f_back  # type: ignore[assignment]
        while True:
            _let_others_continue()
            with suppress(IndexError):
                del self._gate[0]
                return


def _link(block: Block, following: Block) -> None:
    """Insert `following` after `block`; its own `prev` and `next` are already set."""
    if block.next is not None:
        block.next.prev = following
    block.next = following


def _absorb_neighbours(block: Block, state: int) -> None:
    """Merge neighbours of the same state into a block that is in no free list (try_merge_blocks)."""
    free_list = block.free_list
    remove = free_list.remove if state == FREE else free_list.remove_unmapped
    before, after = block.prev, block.next
    if before is not None and before.state == state:
        remove(before)
        block.address, block.prev = before.address, before.prev
        block.size += before.size
        if block.prev is None:
            block.segment.first = block
        else:
            block.prev.next = block
    if after is not None and after.state == state:
        remove(after)
        block.size += after.size
        block.next = after.next
        if block.next is not None:
            block.next.prev = block


@interrupts.interruptible
def _let_others_continue() -> None:
    time.sleep(0)


_OWN_CODE = {function.__code__ for function in vars(CachingAllocator).values() if hasattr(function, "__code__")}
