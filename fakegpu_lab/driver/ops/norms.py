"""Layer norm and batch norm of half-precision operands, which CUDA computes in float32, statistics included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.half_precision import BOTH, in_float32

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def forward_in_float32(op: Op, call: Kernel) -> Kernel:
    """`call` of a norm: the result has the input's dtype, saved statistics are float32, running ones as they were."""
    statistics = tuple(op.position[name] for name in ("running_mean", "running_var") if name in op.position)
    return call if op.outs else in_float32(call, BOTH, results=(0,), updates=statistics)


def batch_norm(op: Op, call: Kernel) -> Kernel:
    """`forward_in_float32`; on meta tensors, in evaluation nothing is saved for backward (Normalization.cpp)."""
    compute, training = forward_in_float32(op, call), op.position["training"]

    def batch_norm(source: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
        results = compute(source, *rest, **kwargs)
        if not source.is_meta or rest[training - 1]:
            return results
        return results[0], source.new_empty(0), source.new_empty(0)

    return batch_norm


def backward_in_float32(weight: int) -> Callable[[Op, Kernel], Kernel]:
    """For `Row.values`: a norm's backward with its weight at this position; gradients have their tensors' dtypes."""

    def values(op: Op, call: Kernel) -> Kernel:
        return call if op.outs else in_float32(call, BOTH, decides=1, results=(1, weight, weight))

    return values
