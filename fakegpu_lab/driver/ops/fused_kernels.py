"""Ops that are one kernel on CUDA, and that torch decomposes on device types that it does not know.

`silu_backward`, `mish_backward` and `_fused_rms_norm` have composite fallbacks in native_functions.yaml, by which the
backward of a SiLU would take four kernels and five times its memory. With a kernel for PrivateUse1 they stay whole.
`embedding_dense_backward` is not decomposed; this file adds the buffers that CUDA's kernel takes while it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import new, take_bytes
from fakegpu_lab.driver.base.half_precision import widened
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, dispatches_itself
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.work import nbytes_of
from fakegpu_lab.driver.ops import linear
from fakegpu_lab.driver.placement import device_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor

_aten: Any = torch.ops.aten
_LONG = 8


def _one_kernel(compute: Callable[..., Any]) -> Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]:
    """A handler that runs `compute`, on a device and inner tensors, as one kernel."""

    def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = [*args, *kwargs.values()]
        for value in values:
            if isinstance(value, torch.Tensor) and dispatches_itself(value):
                return NotImplemented  # a wrapper subclass unwraps itself (AsyncCollectiveTensor, DTensor)
        named = zip((*op.arguments, *kwargs), values, strict=False)
        device = device_check.resolve(op, [(n, v) for n, v in named if isinstance(v, torch.Tensor)], args)
        if device.retired:
            raise device_asserts.retired_error(device)
        inner = [v._inner if v.__class__ is FakeCudaTensor else v for v in values]
        results = compute(device, *inner)
        launched(op, device, inner, results, nbytes_of(inner))
        return results

    return run


@_one_kernel
def rms_norm(device: Device, source: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
    """``_fused_rms_norm``: the output, and one float for each row, for backward (cuda/layer_norm_kernel.cu)."""
    dims = list(range(-len(shape), 0))
    wide = widened(source)
    scale = (wide.square().mean(dims, keepdim=True) + (torch.finfo(wide.dtype).eps if eps is None else eps)).rsqrt()
    out = wide * scale
    if weight is not None:
        out = out * widened(weight)
    return new(out.to(source.dtype), device), new(scale, device)


@_one_kernel
def rms_norm_backward(
    device: Device, grad: Tensor, source: Tensor, shape: list[int], scale: Tensor, weight: Tensor | None,
    mask: list[bool],
) -> Any:  # fmt: skip
    """``_fused_rms_norm_backward``."""
    dims = list(range(-len(shape), 0))
    wide, grad = widened(source), widened(grad)
    normal = wide * scale
    grad_normal = grad if weight is None else grad * widened(weight)
    grad_source = grad_weight = None
    if mask[0]:
        inner = scale * (grad_normal - normal * (grad_normal * normal).mean(dims, keepdim=True))
        grad_source = new(inner.to(source.dtype), device)
    if mask[1] and weight is not None:
        rows = list(range(source.dim() - len(shape)))
        total = (grad * normal).sum(rows) if rows else grad * normal
        grad_weight = new(total.to(weight.dtype), device)
    return grad_source, grad_weight


@_one_kernel
def embedding_backward(
    device: Device, grad: Tensor, indices: Tensor, rows: int, padding: int, by_count: bool
) -> FakeCudaTensor:
    """``embedding_dense_backward``.

    More than 3072 indices are sorted first, and equal ones are summed ten at a time into a buffer of partial sums
    (cuda/Embedding.cu, embedding_dense_backward_cuda; cuda/EmbeddingBackwardKernel.cu). The memory that cub's sort
    takes is left out.
    """
    count, width = indices.numel(), grad.shape[-1]
    held = []
    sorts = count > 3072 or (by_count and count > 0)
    if sorts:
        held = [take_bytes(device, count * indices.element_size()) for _ in range(2)]  # sorted, and their positions
    inner = _aten.embedding_dense_backward(grad, indices, rows, padding, by_count)
    result = new(inner, device)
    if sorts:
        segments = min(count, rows)
        partial = count // 10 + segments
        held += [take_bytes(device, n * indices.element_size()) for n in (count, segments, segments, partial)]
        held += [take_bytes(device, _LONG), take_bytes(device, _LONG)]
        held.append(take_bytes(device, partial * width * max(4, grad.element_size())))
    del held
    return result


@_one_kernel
def silu_backward(device: Device, grad: Tensor, source: Tensor) -> FakeCudaTensor:
    """``silu_backward``."""
    return new(_aten.silu_backward(grad, source), device)


@_one_kernel
def mish_backward(device: Device, grad: Tensor, source: Tensor) -> FakeCudaTensor:
    """``mish_backward``."""
    return new(_aten.mish_backward(grad, source), device)


def register(library: Any) -> None:
    """Register the ops that torch would decompose."""
    for name in ("_fused_rms_norm", "silu_backward", "mish_backward"):
        library.impl(name, linear.unreachable, "PrivateUse1")
