"""The allocator's slow path: settings other than the defaults, private pools, shared blocks, a recorded history.

While one of these is in use, `_slow` is true, and `caching_allocator.CachingAllocator` calls `prepare`, `finish` and
`slow_free` around the steps that it always takes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import (
    ALLOCATED,
    DEFAULT_POOL,
    FREE,
    NULL,
    PENDING,
    QUEUED,
    SHARED,
    Block,
    FreeList,
    PoolId,
    PrivatePool,
    Segment,
)
from fakegpu_lab.hardware.allocator.history import ALL, STATE
from fakegpu_lab.hardware.allocator.record_stream import EventQueue, FinishedClock, StreamClock
from fakegpu_lab.hardware.allocator.segments import SegmentStore
from fakegpu_lab.hardware.allocator.settings import MIN_BLOCK_BYTES, SMALL_LIMIT_BYTES, UNLIMITED, AllocatorSettings
from fakegpu_lab.hardware.allocator.statistics import change_stat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SlowPath(SegmentStore):
    """Part of `caching_allocator.CachingAllocator`."""

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
        "caching",
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
        super().__init__(device, total_bytes, context_bytes, settings or AllocatorSettings())
        # A lock: the thread that removes the one element holds it. `del gate[0]` cannot be interrupted between taking
        # it and entering the try block that puts it back; `lock.acquire()` can, by a notebook's Ctrl-C.
        self._gate: list[None] = [None]
        self._queue: deque[Block] = deque()  # freed blocks; they are put back before the allocator is next read
        self._spare: list[Block] = []  # Block objects to use again: making one costs a sixth of a malloc
        self._events = EventQueue(clock or FinishedClock())
        self._captures: dict[int, PoolId] = {}  # the pools that serve streams under capture
        self._diversions: list[tuple[PoolId, Callable[[int], bool]]] = []  # `controls.MemoryControls.divert`
        self._shared = 0  # blocks that record_stream was called on
        self._expandable_ever = False
        self.caching = True  # set by `controls.MemoryControls.enable_caching`
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

    # ------------------------------------------- around the fast path's steps

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
        if free_list.pool.private is not None and free_list.pool.private.no_split:
            min_remainder = UNLIMITED
        elif free_list.pool.is_small or settings.expandable_segments:
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

    def finish_pending(self) -> None:
        """Wait for all streams, and put back the blocks that they used (synchronize_and_free_events)."""
        self._drain()
        self.counters.num_sync_all_streams += 1
        for block in self._events.wait():
            self._complete(block)

    def _put_back(self, block: Block) -> None:
        raise NotImplementedError

    def _wait_for_gate(self, entry: int = 1) -> None:
        raise NotImplementedError

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

    def last_resort(self, free_list: FreeList, size: int) -> Block | None:
        """try_mempool_fallback: pools made with ``use_on_oom=True`` serve what is not in a pool itself."""
        if free_list.pool.private is None:
            for pool in [one.id for one in self.private_pools.values() if one.use_on_oom]:
                other = self.list_for(size, free_list.stream, pool)
                found = self._find(other, size)
                if found is not None:
                    return other.entries[found][2]
        return None

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
            or any(pool.use_on_oom for pool in self.private_pools.values())
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
