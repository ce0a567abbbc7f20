"""Layer norm and batch norm of half-precision operands, which CUDA computes in float32, statistics included.

cuda/layer_norm_kernel.cu and cuda/Normalization.cu (`acc_type`); an instance norm is a batch norm. Torch's CPU kernels
would keep the statistics in the parameters' dtype, and lose digits there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.half_precision import HALVES, widened

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Tensor = torch.Tensor
    Kernel = Callable[..., Any]


def kernel(op: Op, call: Kernel) -> Kernel:
    """The function that computes `op` on inner tensors in place of `call`; `call` itself for most ops."""
    wrap = _NORMS.get(op.name)
    if wrap is None or op.outs:
        return call
    statistics = tuple(op.position[name] for name in ("running_mean", "running_var") if name in op.position)
    return wrap(call, statistics)


def _forward(call: Kernel, statistics: tuple[int, ...]) -> Kernel:
    """Forward of a norm: the result has the input's dtype, the saved statistics stay float32.

    Running statistics, the arguments at the positions `statistics`, are written in their own dtype.
    """

    def forward(source: Tensor, *rest: Any) -> Any:
        if source.dtype not in HALVES:
            return call(source, *rest)
        args = [source, *rest]
        wide = [_wide(value) for value in args]
        result, *saved = call(*wide)
        for position in statistics:
            if args[position] is not None and args[position] is not wide[position]:
                args[position].copy_(wide[position])
        return result.to(source.dtype), *saved

    return forward


def _backward(weight: int) -> Callable[[Kernel, tuple[int, ...]], Kernel]:
    """Backward of a norm with its weight at this position: each gradient has the dtype of what it belongs to."""

    def wrap(call: Kernel, statistics: tuple[int, ...]) -> Kernel:
        def backward(grad: Tensor, source: Tensor, *rest: Any) -> Any:
            if source.dtype not in HALVES:
                return call(grad, source, *rest)
            scale = rest[weight - 2]
            dtypes = source.dtype, *(2 * [source.dtype if scale is None else scale.dtype])
            grads = call(grad.float(), source.float(), *[_wide(value) for value in rest])
            return tuple(None if g is None else g.to(dtype) for g, dtype in zip(grads, dtypes, strict=True))

        return backward

    return wrap


def _wide(value: Any) -> Any:
    return widened(value) if isinstance(value, torch.Tensor) else value


_NORMS: dict[str, Callable[[Kernel, tuple[int, ...]], Kernel]] = {
    "native_layer_norm": _forward,
    "native_layer_norm_backward": _backward(5),
    "native_batch_norm": _forward,
    "native_batch_norm_backward": _backward(2),
    "_native_batch_norm_legit": _forward,
    "_native_batch_norm_legit_no_training": _forward,
    "_batch_norm_with_update": _forward,
    "_batch_norm_no_update": _forward,
    "batch_norm_backward": _backward(2),
}
