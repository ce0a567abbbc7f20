"""The exception with the figures of an out-of-memory error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DeviceOutOfMemory(Exception):  # noqa: N818 - what CUDA calls it
    """The device has no room for a segment. The driver turns these figures into torch.OutOfMemoryError's text.

    Attributes (all sizes in bytes)
    ----------
    device
        The device's index.
    requested
        What the program asked for.
    segment
        The segment that this needed; CUDA's message says that it "tried to allocate" this.
    total, free
        The card's memory, and how much of it is free, as cudaMemGetInfo reports them.
    in_use
        What this process holds, "including non-PyTorch memory".
    allowed
        The limit of set_per_process_memory_fraction, or None.
    allocated
        "allocated by PyTorch"; includes `private_pools`, as in the message.
    private_pools
        Free bytes of private pools: "allocated in private pools (e.g., CUDA Graphs)".
    reserved_unallocated
        "reserved by PyTorch but unallocated".
    """

    device: int
    requested: int
    segment: int
    total: int
    free: int
    in_use: int
    allowed: int | None
    allocated: int
    private_pools: int
    reserved_unallocated: int

    def __str__(self) -> str:
        return (
            f"device {self.device}: no room for a segment of {self.segment} bytes "
            f"({self.free} of {self.total} free, {self.allocated} allocated)"
        )
