"""Regions within TorchScript: the casts that its compiler inserts into a scripted function.

For ``with torch.autocast("cuda")`` in a scripted function, torch/csrc/jit/passes/autocast.cpp inserts two ops, which
look for a CUDA device in C++ (aten/src/ATen/native/TensorConversions.cpp). For tensors on a device this file has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op


def to_reduced_precision(
    tensor: torch.Tensor, cuda_enabled: bool, cpu_enabled: bool, cuda_dtype: torch.dtype, cpu_dtype: torch.dtype
) -> torch.Tensor:
    """``aten::_autocast_to_reduced_precision`` of a device tensor."""
    return tensor.to(cuda_dtype) if cuda_enabled and tensor.dtype is torch.float32 else tensor


def to_full_precision(tensor: torch.Tensor, cuda_enabled: bool, cpu_enabled: bool) -> torch.Tensor:
    """``aten::_autocast_to_full_precision`` of a device tensor."""
    return tensor.float() if cuda_enabled and tensor.dtype in (torch.float16, torch.bfloat16) else tensor


KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "_autocast_to_reduced_precision": to_reduced_precision,
    "_autocast_to_full_precision": to_full_precision,
}


def below_autograd(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """For `Row.runs`: one of `KERNELS`."""
    return KERNELS[op.name](*args, **kwargs)


def register() -> list[Any]:
    """Register the kernels above autograd; they last until the returned library is destroyed."""
    make: Any = torch.library.Library
    library = make("aten", "IMPL")
    for name, kernel in KERNELS.items():
        library.impl(name, kernel, "AutogradPrivateUse1")
    return [library]
