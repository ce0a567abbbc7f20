"""What one device's allocator consists of: its settings, segments, pools of free blocks, counters and history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator.blocks import BlockPool, PoolId, PrivatePool, Segment
from fakegpu_lab.hardware.allocator.device_memory import DeviceMemory
from fakegpu_lab.hardware.allocator.statistics import DeviceCounters

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.blocks import Block
    from fakegpu_lab.hardware.allocator.history import Frames, History
    from fakegpu_lab.hardware.allocator.settings import AllocatorSettings


class AllocatorState:
    """The data that all parts of an allocator share.

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
        self.context: Frames | None = None

    def trace(self, action: str, address: int, size: int, block: Block, default: Frames | None = None) -> None:
        """record_trace, with the frames of the current call, or else `default`."""
        if self.history is not None:
            frames = self.context if self.context is not None else default
            self.history.record(action, address, size, block.stream, block.free_list.pool.id, frames)

    def count_reserved(self, pool: BlockPool, change: int) -> None:
        """Count bytes taken from the device, or given back if negative."""
        if change > 0:
            pool.counters.reserved.add(change)
        else:
            pool.counters.reserved.subtract(-change)
        if pool.private is not None:
            pool.private.reserved_bytes += change
            self.counters.count_private(pool.private.id, small=pool.is_small, change=change)
