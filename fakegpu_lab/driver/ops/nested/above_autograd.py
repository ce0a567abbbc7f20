"""What C++ would do with a NestedTensorImpl above autograd, which our wrapper is not."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import NestedCudaTensor
from fakegpu_lab.driver.ops.nested.attention import scaled_dot_product_attention, scaled_dot_product_flash_attention
from fakegpu_lab.driver.ops.nested.making import to_copy

if TYPE_CHECKING:
    from collections.abc import Callable


class _Unbind(torch.autograd.Function):
    """``unbind(0)``, differentiable: C++'s formula takes the wrapper for a NestedTensorImpl."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        items = tuple(source.unbind())
        ctx.empty = [partial(torch.zeros, item.shape, dtype=item.dtype, device=item.device) for item in items]
        return items

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        return torch._nested_tensor_from_tensor_list(
            [zeros() if grad is None else grad for zeros, grad in zip(ctx.empty, grads, strict=True)]
        )


class _Split(torch.autograd.Function):
    """``split_with_sizes`` in another dimension than the batch's, differentiable."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, sizes: list[int], dim: int) -> Any:
        ctx.set_materialize_grads(False)
        ctx.dim = dim % source.dim() - 1
        parts = tuple(source.split_with_sizes(sizes, dim))
        ctx.empty = [
            [partial(torch.zeros, item.shape, dtype=item.dtype, device=item.device) for item in part.unbind()]
            for part in parts
        ]
        return parts

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        parts = [
            [zeros() for zeros in empty] if grad is None else grad.unbind()
            for empty, grad in zip(ctx.empty, grads, strict=True)
        ]
        items = [torch.cat(item, ctx.dim) for item in zip(*parts, strict=True)]
        return torch._nested_tensor_from_tensor_list(items), None, None


def _tracked(tensor: torch.Tensor) -> bool:
    return type(tensor) is NestedCudaTensor and tensor.requires_grad and torch.is_grad_enabled()


def _unbind(torchs: Any, keys: Any, self: torch.Tensor, dim: int = 0) -> Any:
    return list(_Unbind.apply(self)) if _tracked(self) and dim == 0 else torchs(keys, self, dim)  # type: ignore[no-untyped-call]


def _split_with_sizes(torchs: Any, keys: Any, self: torch.Tensor, sizes: Any, dim: int = 0) -> Any:
    if _tracked(self):
        return list(_Split.apply(self, list(sizes), dim))  # type: ignore[no-untyped-call]
    return torchs(keys, self, sizes, dim)


def _reshape(torchs: Any, keys: Any, self: torch.Tensor, shape: Any) -> torch.Tensor:
    """A view if that is possible, else one of a copy (nested/NestedTensorMath.cpp, reshape_nested)."""
    if type(self) is not NestedCudaTensor:
        return torchs(keys, self, shape)  # type: ignore[no-any-return]
    return (self if self.is_contiguous() else self.clone(memory_format=torch.contiguous_format)).view(shape)


def _reshape_as(torchs: Any, keys: Any, self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """reshape_as_nested: to the sizes of `other`, -1 where they differ."""
    if type(self) is not NestedCudaTensor and type(other) is not NestedCudaTensor:
        return torchs(keys, self, other)  # type: ignore[no-any-return]
    columns = other._nested_tensor_size().unbind(1)
    same = [int(column[0]) if bool((column == column[0]).all()) else -1 for column in columns]
    return self.reshape(other.size(0), *same)


_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "unbind.int": _unbind,
    "split_with_sizes": _split_with_sizes,
    "reshape": _reshape,
    "reshape_as": _reshape_as,
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "_scaled_dot_product_flash_attention": scaled_dot_product_flash_attention,
}
"""Attention, whose kernel C++ does not choose for us, and where C++ uses the NestedTensorImpl itself, which the wrapper
is not (tools/autograd/derivatives.yaml, native_functions.yaml). Other nested tensors take torch's own kernels."""


def register(library: Any) -> None:
    """Register the move to a device, and what nested tensors on one need above autograd."""
    for key in ("NestedTensorPrivateUse1", "NestedTensorCUDA"):
        library.impl("_to_copy", to_copy, key)
    for name, kernel_ in _ABOVE_AUTOGRAD.items():
        torchs = _torchs_kernel(name)
        library.impl(name, partial(kernel_, torchs), "AutogradNestedTensor", with_keyset=True)


@cache
def _torchs_kernel(name: str) -> Any:
    """Torch's own kernel for nested tensors of an op, from before ours replaced it."""
    get_kernel: Any = torch.library.get_kernel
    return get_kernel(f"aten::{name}", "AutogradNestedTensor").call_boxed
