"""Taking device memory for a storage, and torch.OutOfMemoryError when there is none left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.driver import messages
from fakegpu_lab.hardware.allocator import DeviceOutOfMemory
from fakegpu_lab.hardware.buffer import Buffer

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device


def take_bytes(device: Device, nbytes: int) -> Buffer:
    """A new storage of `nbytes` bytes on `device`, for its current stream; raises torch.OutOfMemoryError."""
    try:
        return Buffer(device, nbytes, device.stream)
    except DeviceOutOfMemory as error:
        raise messages.out_of_memory(error) from None
