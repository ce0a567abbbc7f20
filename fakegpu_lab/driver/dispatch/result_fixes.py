"""Fixes for ops whose CPU or meta kernels return more tensors or other dtypes than CUDA's.

Tensors saved for backward count as device memory, so these results are fixed before they are wrapped: at the one place
where an op's kernel is chosen (`prepare`). All other ops are not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.meta import no_values
from fakegpu_lab.driver.ops import cuda_only_kernels, half_layer_norm, histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]

_MAX = 2  # EmbeddingBagMode::MAX
_CALLS = half_layer_norm.CALLS | histogram.CALLS


def prepare(op: Op) -> Op:
    """Set `op.call` to the kernel that computes it; returns `op`."""
    if not op.schema.overload_name:
        op.call = _CALLS.get(op.name, op.call)
    call = cuda_only_kernels.kernel(op, no_values.kernel(op))
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


def _float_statistics(call: Kernel) -> Kernel:
    """Make the mean and inverse deviation of half-precision inputs float32.

    `toAccumulateType` in cuda/layer_norm_kernel.cu and cuda/Normalization.cu; the CPU keeps the weight's dtype.
    """

    def forward(*args: Any, **kwargs: Any) -> Any:
        result, mean, deviation = call(*args, **kwargs)
        if mean.dtype in HALVES:
            return result, mean.float(), deviation.float()
        return result, mean, deviation

    return forward


def _half_statistics(position: int, weight: int) -> Callable[[Kernel], Kernel]:
    """The inverse of `_float_statistics`: the CPU's backward needs the weight's dtype. No digit is lost."""

    def wrap(call: Kernel) -> Kernel:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if args[1].dtype in HALVES and args[position] is not None:
                dtype = args[1].dtype if args[weight] is None else args[weight].dtype
                saved = (tensor.to(dtype) for tensor in args[position : position + 2])
                args = (*args[:position], *saved, *args[position + 2 :])
            return call(*args, **kwargs)

        return backward

    return wrap


def _no_maxima(call: Kernel) -> Kernel:
    """Keep the indices of maxima in `embedding_bag` only if its mode is max (cuda/EmbeddingBag.cu)."""

    def embedding_bag(*args: Any, **kwargs: Any) -> Any:
        mode = args[4] if len(args) > 4 else kwargs.get("mode", 0)
        results = call(*args, **kwargs)
        return results if mode == _MAX else (*results[:3], results[3].new_empty(0))

    return embedding_bag


_FIXES: dict[str, Callable[[Kernel], Kernel]] = {
    "_embedding_bag": _no_maxima,
    "_embedding_bag_forward_only": _no_maxima,
    "native_batch_norm": _float_statistics,
    "native_batch_norm_backward": _half_statistics(5, 2),
    "native_layer_norm": _float_statistics,
    "native_layer_norm_backward": _half_statistics(3, 5),
}
