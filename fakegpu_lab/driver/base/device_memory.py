"""Allocates device memory for tensors; raises torch.OutOfMemoryError when none is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.base import cuda_messages, not_simulated
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap
from fakegpu_lab.hardware.allocator.caching_allocator import DeviceOutOfMemory
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device

_make_wrapper = torch.Tensor._make_wrapper_subclass
_strided = torch.strided


def take_bytes(device: Device, nbytes: int) -> Buffer:
    """A new storage of `nbytes` bytes on `device`, for its current stream; raises torch.OutOfMemoryError."""
    try:
        return Buffer(device, nbytes, here.host.streams[device].id)
    except DeviceOutOfMemory as error:
        raise cuda_messages.out_of_memory(error) from None


def resize_bytes(buffer: Buffer, nbytes: int) -> None:
    """Resize a storage; raises torch.OutOfMemoryError."""
    try:
        buffer.resize(nbytes)
    except DeviceOutOfMemory as error:
        raise cuda_messages.out_of_memory(error) from None


def take(device: Device, inner: torch.Tensor) -> Buffer:
    """The device memory of a new tensor with the values `inner`; none for a sparse one, whose parts have it."""
    return take_bytes(device, storage_bytes(inner) if inner.layout is torch.strided else 0)


def new(inner: torch.Tensor, device: Device) -> FakeCudaTensor:
    """A new tensor on `device` with the values `inner`, in new device memory; raises torch.OutOfMemoryError.

    ``wrap(inner, device, take(device, inner))``, written out for the common case: almost every op calls this.
    """
    try:
        shape = inner.shape
    except RuntimeError:
        raise not_simulated.error("strided nested tensors") from None
    if inner.layout is not _strided or not inner.is_contiguous() or 1 in shape or 0 in shape:
        return wrap(inner, device, take(device, inner))
    try:
        buffer = Buffer(device, inner.nbytes, here.host.streams[device].id)
    except DeviceOutOfMemory as error:
        raise cuda_messages.out_of_memory(error) from None
    tensor = _make_wrapper(FakeCudaTensor, shape, dtype=inner.dtype, device=CPP_DEVICES[device.index])
    tensor._inner = inner
    tensor._buffer = buffer
    tensor._device = device
    return tensor


def storage_bytes(inner: torch.Tensor) -> int:
    """The bytes of a new tensor's storage; of a sparse tensor, the bytes of all its parts."""
    if inner.layout is torch.strided:
        return inner.nbytes if inner.is_contiguous() else inner.untyped_storage().nbytes()
    return sum(part.nbytes for part in sparse_parts(inner))


def sparse_parts(inner: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that make up a sparse one: its indices, then its values."""
    if inner.layout is torch.sparse_coo:
        return [inner._indices(), inner._values()]
    if inner.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [inner.crow_indices(), inner.col_indices(), inner.values()]
    if inner.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [inner.ccol_indices(), inner.row_indices(), inner.values()]
    return []
