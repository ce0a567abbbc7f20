"""The device memory of one tensor storage, freed with the last tensor that uses it."""

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

    Python's reference count stands for the storage's: when the last tensor dies (tensors saved for backward included),
    `__del__` frees the block, at the moment at which CUDA's deleter would.

    Attributes
    ----------
    device
        The device that has the memory.
    block
        The allocator's block.
    nbytes
        The size of the storage in bytes; the block's size is this, rounded.
    kind
        "input" if it was filled from the host, "workspace" if a library keeps it; else not set.
    category
        The event that took it, while a live display watches (`live_memory`); else not set.
    made_by
        The number of the op that made its values, while results are followed (`results`); else not set.
    uses
        Its uses by streams, during a recording with several streams; else not set.
    """

    __slots__ = ("allocator", "block", "category", "device", "kind", "made_by", "nbytes", "uses")

    allocator: CachingAllocator
    block: Block | None
    category: int
    kind: str
    made_by: int
    uses: Uses | None

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.block = None  # first: __del__ also runs when malloc raises
        self.device = device
        self.allocator = allocator = device.allocator
        self.nbytes = nbytes
        self.block = allocator.malloc(nbytes, stream)

    def __del__(self) -> None:
        try:
            block = self.block
        except AttributeError:  # an exception came before the first line of __init__
            return
        if block is not None:
            self.allocator.free(block)

    @property
    def address(self) -> int:
        """Where the bytes are on the device; 0 if there are none."""
        return self.block.address if self.block is not None else 0

    def resize(self, nbytes: int) -> None:
        """Resize the storage: as in CUDA's `resize_bytes`, the new block is allocated before the old is freed."""
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
def _stop_freeing() -> None:
    """Make `__del__` do nothing when Python ends: from 3.13 on, the names that it needs die before the last tensors."""
    classes: list[type[Buffer]] = [Buffer]
    for cls in classes:
        setattr(cls, "__del__", lambda self: None)  # noqa: B010 - mypy rejects an assignment
        classes += cls.__subclasses__()
