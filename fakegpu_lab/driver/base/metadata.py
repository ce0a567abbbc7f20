"""Updates a tensor's C++ metadata (sizes, strides, version) after an op has changed its inner tensor."""

from __future__ import annotations

from typing import Any

import torch

from fakegpu_lab.driver.base.device_memory import resize_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap_view

_own_storage = torch._C.TensorBase.untyped_storage


def sync_metadata(tensor: FakeCudaTensor) -> None:
    """Update the C++ half and the device memory after the inner tensor was resized, transposed or set in place."""
    inner = tensor._inner
    if inner.layout is not torch.strided:
        if inner.shape != tensor.shape:
            torch._C.TensorBase.data.__set__(tensor, wrap_view(inner, tensor._device, tensor._buffer))  # type: ignore[attr-defined]
        return
    needed = inner.untyped_storage().nbytes()
    if needed > tensor._buffer.nbytes:
        resize_bytes(tensor._buffer, needed)
    if _geometry(inner) != _geometry(tensor):
        replace_metadata(tensor, inner)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset()


def replace_metadata(tensor: FakeCudaTensor, inner: torch.Tensor) -> None:
    """Give the C++ half of `tensor` the sizes, strides, offset and dtype of `inner` (C++ `set_data`).

    Simplified: if it grows beyond its storage, C++ no longer treats it as an alias of its earlier views.
    """
    large_enough = _own_storage(tensor).nbytes() >= inner.untyped_storage().nbytes()
    with torch.inference_mode(tensor.is_inference()):
        alike = wrap_view(inner, tensor._device, tensor._buffer, tensor if large_enough else None)
        torch._C.TensorBase.data.__set__(tensor, alike)  # type: ignore[attr-defined]


def bump_versions(tensors: list[FakeCudaTensor]) -> None:
    """Count a write to each tensor of a list: torch leaves that to the kernels (ForeachUtils.h)."""
    torch.autograd.graph.increment_version([tensor for tensor in tensors if not tensor.is_inference()])
