"""The bytes that one tensor storage holds on a device, freed when the last tensor over them dies."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.caching_allocator import Block, CachingAllocator
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.happens_before import Uses


_MAPPED = 2 * 1024**2
"""What another process's memory is mapped in multiples of."""


class Buffer:
    """Device memory behind one storage; every tensor that shares the storage shares the Buffer.

    Reference counting *is* the storage's reference count: when the last tensor goes (a tensor saved for
    backward is one of them), `__del__` hands the block back, at the same moment as CUDA's deleter would.

    Attributes
    ----------
    device
        The device that the bytes are on.
    block
        The allocator's block.
    nbytes
        The size of the storage in bytes; the block's size is this, rounded.
    kind
        "input" where it was filled from the host; else not set.
    uses
        By which streams, while somebody records and several are at work; else not set.
    """

    __slots__ = ("allocator", "block", "device", "kind", "nbytes", "uses")

    allocator: CachingAllocator
    block: Block | None
    kind: str
    uses: Uses | None

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.block = None  # first: __del__ also runs when malloc raises
        self.device = device
        self.allocator = allocator = device.allocator
        self.nbytes = nbytes
        self.block = allocator.malloc(nbytes, stream)

    def __del__(self) -> None:
        block = self.block
        if block is not None:
            self.allocator.free(block)

    @property
    def address(self) -> int:
        """Where the bytes are on the device; 0 if there are none."""
        return self.block.address if self.block is not None else 0

    def resize(self, nbytes: int) -> None:
        """Give the storage `nbytes` bytes: like CUDA's `resize_bytes`, the new block is taken before the old goes."""
        old = self.block
        self.block = self.allocator.malloc(nbytes, old.stream if old is not None else 0)
        self.nbytes = nbytes
        if old is not None:
            self.allocator.free(old)


class ReceivedBuffer(Buffer):
    """Device memory that another process took and shares: nothing of this process's device, whose address is its own.

    Attributes
    ----------
    opened_at
        The address that the memory was given in this process.
    """

    __slots__ = ("opened_at",)

    _next_address = 0x7C00_0000_0000

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.block = None
        self.device = device
        self.allocator = device.allocator
        self.nbytes = nbytes
        self.opened_at = ReceivedBuffer._next_address
        ReceivedBuffer._next_address += -(-nbytes // _MAPPED) * _MAPPED

    def __del__(self) -> None:
        pass

    @property
    def address(self) -> int:
        """Where the bytes are in this process's address space."""
        return self.opened_at

    def resize(self, nbytes: int) -> None:
        """Refused, as C++ does."""
        raise RuntimeError("Trying to resize storage that is not resizable")


@atexit.register
def _nobody_counts_any_more() -> None:
    """While Python ends, the names that `__del__` needs go before the last tensors do (from 3.13 on)."""
    for kind in (Buffer, *Buffer.__subclasses__()):
        setattr(kind, "__del__", lambda self: None)  # noqa: B010 - which mypy would not have otherwise
