"""Half-precision ops that are computed in float32 and rounded once, because the CPU's own kernels are slow or inexact.

CUDA accumulates half precision in float32 (`acc_type`, `opmath_t`) and rounds the result. Most of the CPU's kernels do
the same. Here are those that multiply in half precision without the processor's help, or round on the way;
`benchmarks/half_kernels.py` finds the slow ones. Only the values are computed in float32: memory, kernels and FLOPs of
the simulated device are those of the half-precision op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from fakegpu_lab.driver.base.half_precision import HALVES, SLOW_PRODUCTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]

_BOTH = frozenset(HALVES)

# Many programs call these: where oneDNN is fast, they stay as they are.
_PRODUCTS = (
    "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "addbmm", "addbmm_", "mv", "addmv", "addmv_",
    "_addmm_activation", "linalg_matrix_exp",
)  # fmt: skip

_DTYPES: dict[str, frozenset[torch.dtype]] = {
    **dict.fromkeys(_PRODUCTS, SLOW_PRODUCTS),
    "_adaptive_avg_pool3d": _BOTH,
    "_adaptive_avg_pool3d_backward": _BOTH,
    "dot": _BOTH,
    "erfinv": _BOTH,
    "erfinv_": _BOTH,
    **dict.fromkeys(("grid_sampler_2d", "grid_sampler_2d_backward"), _BOTH),  # cuda/GridSampler.cu
    **dict.fromkeys(("grid_sampler_3d", "grid_sampler_3d_backward"), _BOTH),
    "logit": _BOTH,
    **dict.fromkeys(("std", "std_mean", "var", "var_mean"), _BOTH),
    **dict.fromkeys(("std.correction", "std_mean.correction", "var.correction", "var_mean.correction"), _BOTH),
}
"""By name, or name.overload: the dtypes that are computed in float32.

Simplified: CUDA also rounds between the products of `linalg_matrix_exp` and of `addbmm`, and adds up the gradients of a
grid sampler in half precision, in an order of its own.
"""


_CONVOLUTIONS = ("convolution", "convolution_backward", "_convolution")
_VOLUME = 5  # dimensions


def kernel(op: Op, call: Kernel) -> Kernel:
    """The function that computes `op` in place of `call`; `call` itself for most ops."""
    if op.name in _CONVOLUTIONS:
        return _convolution(call, op.written)
    overload = op.schema.overload_name
    name = op.name if overload in ("", "out") else f"{op.name}.{overload.removesuffix('_out')}"
    dtypes = _DTYPES.get(name)
    return rounding_once(call, dtypes, position=op.tensors[0], written=op.written) if dtypes else call


def _convolution(call: Kernel, written: tuple[str, ...]) -> Kernel:
    """A convolution in half precision, forward or backward.

    oneDNN is slow in float16, backward, on every processor. In bfloat16 it is as fast as the processor, but for some
    volumes it has only its reference implementation.
    """
    slow = SLOW_PRODUCTS | {torch.float16}
    flat = rounding_once(call, slow, written=written)
    volumes = rounding_once(call, _BOTH, written=written)

    def convolution(*args: Any, **kwargs: Any) -> Any:
        return (volumes if args[0].dim() == _VOLUME else flat)(*args, **kwargs)

    return convolution


def rounding_once(
    call: Kernel,
    narrow: Collection[torch.dtype],
    wide: torch.dtype = torch.float32,
    *,
    position: int = 0,
    written: tuple[str, ...] = (),
) -> Kernel:
    """`call`, with operands of the dtypes `narrow` widened to `wide`, and results rounded back.

    Parameters
    ----------
    position
        Of the operand whose dtype decides.
    written
        Names of the arguments that the op writes to.
    """
    if not narrow:
        return call

    def rounding(*args: Any, **kwargs: Any) -> Any:
        dtype = args[position].dtype
        if dtype not in narrow or _mixed((*args, *kwargs.values()), dtype):
            return call(*args, **kwargs)

        def widen(value: Any) -> Any:
            return value.to(wide) if isinstance(value, torch.Tensor) and value.dtype is dtype else value

        def rounded(value: Any) -> Any:
            return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is wide else value

        wider = [widen(value) for value in args]
        results = tree_map(rounded, call(*wider, **{name: widen(value) for name, value in kwargs.items()}))
        if not written:
            return results
        targets = [kwargs[name] for name in written if name in kwargs] or [args[0]]
        for target, result in zip(targets, results if isinstance(results, tuple) else (results,), strict=True):
            into(target, result)
        return results

    return rounding


def _mixed(values: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Whether a tensor has another floating dtype, of which the kernel of `call` has something to say."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.dtype is not dtype and value.is_floating_point():
            return True
    return False


def into(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Write a result to `out`, whose shape it gets."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)
