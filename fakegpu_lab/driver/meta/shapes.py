"""``compute="meta"``: shape functions that torch lacks, or that save other tensors than the kernel (`Row.shape`).

The inner tensors live on torch's meta device, so a kernel costs microseconds and no RAM, and everything is counted as
usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import suggest_memory_format

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.meta import shape_cache

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor


def like(position: int) -> Callable[..., Tensor]:
    """One new tensor with the shape and dtype of an argument."""

    def shape(*args: Any, **kwargs: Any) -> Tensor:
        return torch.empty_like(args[position], memory_format=torch.contiguous_format)

    return shape


def nothing(*args: Any, **kwargs: Any) -> None:
    """For an op that only writes to its arguments."""


def geqrf(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """BatchLinearAlgebra.cpp, `geqrf`: the factors in column-major order, and one scalar for each reflector."""
    taus = matrix.new_empty((*matrix.shape[:-2], min(matrix.shape[-2:])))
    return torch.empty_like(matrix.mT, memory_format=torch.contiguous_format).mT, taus


def addmm(added: Tensor, a: Tensor, b: Tensor, **scales: Any) -> Tensor:
    """Torch's shape function decomposes it, and imports Dynamo for that: 36 MiB."""
    if a.dim() == b.dim() == 2 and a.shape[1] == b.shape[0] and added.dtype is a.dtype is b.dtype:
        shape = (a.shape[0], b.shape[1])
        if added.dim() <= 2 and all(n in (1, m) for n, m in zip(reversed(added.shape), reversed(shape), strict=False)):
            return a.new_empty(shape)
    result: Tensor = torch.ops.aten.addmm.default(added, a, b, **scales)
    return result


def layout_of_convolution(source: Tensor, weight: Tensor) -> torch.memory_format:
    """Channels last, if source or weight is by its strides (`cudnn_conv_suggest_memory_format` in ConvUtils.h)."""
    found = {suggest_memory_format(source), suggest_memory_format(weight)}
    last = torch.channels_last if weight.dim() == 4 else torch.channels_last_3d
    double = torch.float64 in (source.dtype, weight.dtype)
    return last if last in found and not double else torch.contiguous_format


def convolution(source: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """As the kernel lays it out."""
    result: Tensor = torch.ops.aten.convolution.default(source, weight, *rest)
    layout = layout_of_convolution(source, weight)
    return result if layout is torch.contiguous_format else torch.empty_like(result, memory_format=layout)


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """GroupedMMUtils.h: CUDA has it for float32 and float16, too, which the shape function refuses."""
    if a.dtype is torch.bfloat16:
        product: Tensor = torch.ops.aten._grouped_mm.default(a, b, offs, bias, out_dtype)
        return product
    shape = [a.shape[-2], b.shape[-1]]
    if a.dim() == b.dim():  # of matrices, one product for each offset
        shape.insert(0, a.shape[0] if a.dim() == 3 or offs is None else offs.shape[0])
    row = -(-shape[-1] * a.itemsize // 16) * 16 // a.itemsize  # rows begin at multiples of 16 bytes
    return a.new_empty_strided(shape, [shape[-2] * row, row, 1][-len(shape) :])


_ELEMENTWISE = {"add", "addcdiv", "addcmul", "div", "lerp", "mul", "neg", "reciprocal", "sqrt", "sub"}
"""If all tensors have one shape and one floating dtype, so does the result; also in place, and of foreach ops."""


def kernel(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, or on a machine without values a shape function of the op."""
    if not current.meta():
        return call
    if op.row.shape is not None and not op.outs:
        call = op.row.shape
    if shape_cache.is_cacheable(op):
        return shape_cache.cached(call)
    name = op.name.removeprefix("_foreach_")
    if name.removesuffix("_") in _ELEMENTWISE and not op.outs:
        return _in_place(call) if name == op.name else _foreach(call, in_place=name.endswith("_"))
    return call


# Torch's shape functions of these are written in Python and take 0.3 ms. A model of 70 billion parameters has thousands
# of tensors, and an optimizer runs a dozen of these ops for each.


def _in_place(call: Callable[..., Any]) -> Callable[..., Any]:
    def in_place(first: Any, *rest: Any, **kwargs: Any) -> Any:
        if not first.is_meta or not first.is_contiguous() or not _alike(first, rest):
            return call(first, *rest, **kwargs)
        return first

    return in_place


def _foreach(call: Callable[..., Any], *, in_place: bool) -> Callable[..., Any]:
    def foreach(first: list[Tensor], *rest: Any, **kwargs: Any) -> Any:
        lists = [other for other in rest if other.__class__ is list and other and isinstance(other[0], torch.Tensor)]
        if any(len(other) != len(first) for other in lists) or any(isinstance(other, torch.Tensor) for other in rest):
            return call(first, *rest, **kwargs)
        for tensors in zip(first, *lists, strict=True):
            if not _alike(tensors[0], tensors[1:]):
                return call(first, *rest, **kwargs)
        return first if in_place else [shape_cache.like(tensor) for tensor in first]

    return foreach


def _alike(first: Tensor, rest: tuple[Any, ...]) -> bool:
    """Whether the tensors in `rest` have the shape and dtype of the first, and so has an elementwise op's result."""
    if not first.is_floating_point():
        return False
    shape, dtype = first.shape, first.dtype
    for other in rest:
        if isinstance(other, torch.Tensor):
            if other.shape != shape or other.dtype is not dtype or not other.is_contiguous():
                return False
        elif isinstance(other, complex):
            return False
    return True
