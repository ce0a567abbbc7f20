"""The allocator's side of torch.cuda.memory: reading, emptying, limiting and recording device memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, NULL, SHARED
from fakegpu_lab.hardware.allocator.history import ALL, History
from fakegpu_lab.hardware.allocator.slow_path import SlowPath

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.allocator.blocks import Block, PoolId
    from fakegpu_lab.hardware.allocator.history import Frames
    from fakegpu_lab.hardware.allocator.settings import AllocatorSettings


class MemoryControls(SlowPath):
    """Part of `caching_allocator.CachingAllocator`: everything that programs call, except malloc and free."""

    __slots__ = ()

    # -------------------------------------------------------------- reading

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

    def in_use(self) -> list[tuple[int, int]]:
        """The blocks that tensors hold: (address, bytes)."""
        with self._locked():
            blocks = (block for segment in self.segments.values() for block in segment.blocks())
            return [(block.address, block.size) for block in blocks if block.state in (ALLOCATED, SHARED)]

    # ------------------------------------------------------------- changing

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

    def hold_pool(self, pool: PoolId, *, use_on_oom: bool = False, no_split: bool = False) -> None:
        """Add a user to a private pool, which is made if it is new (createOrIncrefPool, setUseOnOOM, setNoSplit)."""
        with self._locked():
            if pool in self.private_pools:
                self.private_pools[pool].users += 1
            else:
                self._private_pool(pool)
            if use_on_oom or no_split:
                self.private_pools[pool].use_on_oom = use_on_oom
                self.private_pools[pool].no_split = no_split
                self._choose_path()

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
        private.use_on_oom = False
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
