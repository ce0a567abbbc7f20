"""Fixes for ops whose CPU or meta kernels return more tensors or other dtypes than CUDA's.

Tensors saved for backward count as device memory, so these results are fixed before they are wrapped: at the one place
where an op's kernel is chosen (`prepare`). All other ops are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.meta import no_values
from fakegpu_lab.driver.ops import cuda_only_kernels, half_norms, histogram, rounded_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]

_MAX = 2  # EmbeddingBagMode::MAX


def prepare(op: Op) -> Op:
    """Set `op.call` to the kernel that computes it; returns `op`."""
    if not op.schema.overload_name:
        op.call = histogram.CALLS.get(op.name, op.call)
    op.call = half_norms.kernel(op, op.call)
    call = cuda_only_kernels.kernel(op, no_values.kernel(op))
    if not current.meta():
        call = rounded_once.kernel(op, call)
    if "output_mask" in op.position:
        call = _masked(call, op.position["output_mask"])
    wrap = _FIXES.get(op.name)
    op.call = wrap(call) if wrap is not None else call
    return op


def _masked(call: Kernel, position: int) -> Kernel:
    """Leave out gradients that the output mask does not request: some CPU kernels compute all three."""

    def masked(*args: Any, **kwargs: Any) -> Any:
        mask = args[position] if position < len(args) else kwargs["output_mask"]
        results = call(*args, **kwargs)
        if all(mask):
            return results
        return tuple(result if asked else None for result, asked in zip(results, mask, strict=True))

    return masked


def _no_maxima(call: Kernel) -> Kernel:
    """Keep the indices of maxima in `embedding_bag` only if its mode is max (cuda/EmbeddingBag.cu)."""

    def embedding_bag(*args: Any, **kwargs: Any) -> Any:
        mode = args[4] if len(args) > 4 else kwargs.get("mode", 0)
        results = call(*args, **kwargs)
        return results if mode == _MAX else (*results[:3], results[3].new_empty(0))

    return embedding_bag


def _in_cudnn_s_format(call: Kernel) -> Kernel:
    """3D convolutions in channels-last format if input or weight is (cudnn_conv_suggest_memory_format)."""
    last = torch.channels_last_3d

    def convolution(source: torch.Tensor, weight: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
        result = call(source, weight, *rest, **kwargs)
        if weight.dim() == 5 and any(
            tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() for tensor in (source, weight)
        ):
            return result.contiguous(memory_format=last)
        return result

    return convolution


_FIXES: dict[str, Callable[[Kernel], Kernel]] = {
    "convolution": _in_cudnn_s_format,
    "_embedding_bag": _no_maxima,
    "_embedding_bag_forward_only": _no_maxima,
}
