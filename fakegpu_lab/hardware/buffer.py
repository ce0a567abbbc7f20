"""The device memory of one tensor storage, freed with the last tensor that uses it."""

from __future__ import annotations

import atexit
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator.caching_allocator import Block, CachingAllocator
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.happens_before import Uses


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
        "input" if it was filled from the host; else not set.
    uses
        Its uses by streams, during a recording with several streams; else not set.
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
        try:
            block = self.block
        except AttributeError:  # an exception came before the first line of __init__
            return
        if block is not None:
            self.allocator.free(block)

    def resize(self, nbytes: int) -> None:
        """Resize the storage: as in CUDA's `resize_bytes`, the new block is allocated before the old is freed."""
        old = self.block
        self.block = self.allocator.malloc(nbytes, old.stream if old is not None else 0)
        self.nbytes = nbytes
        if old is not None:
            self.allocator.free(old)


@atexit.register
def _stop_freeing() -> None:
    """Make `__del__` do nothing when Python ends: from 3.13 on, the names that it needs die before the last tensors."""
    for cls in (Buffer, *Buffer.__subclasses__()):
        setattr(cls, "__del__", lambda self: None)  # noqa: B010 - mypy rejects an assignment
