"""The function that computes an op's values: torch's CPU kernel, or what the op sheet puts in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.half_precision import in_float32
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.placement import dtypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def kernel(op: Op) -> Kernel:
    """The function that computes `op` on inner tensors."""
    call, row = op.call, op.row
    if row.values is not None:
        call = row.values(op, call)
    if row.in_float32:
        call = in_float32(call, row.in_float32, decides=op.tensors[0], written=op.written)
    call = shapes.kernel(op, call)
    if row.no_integers:
        call = dtypes.refusing_integers(op, call)
    return _masked(call, op.position["output_mask"]) if "output_mask" in op.position else call


def _masked(call: Kernel, position: int) -> Kernel:
    """Leave out gradients that the output mask does not request: some CPU kernels compute all three."""

    def masked(*args: Any, **kwargs: Any) -> Any:
        mask = args[position] if position < len(args) else kwargs["output_mask"]
        results = call(*args, **kwargs)
        if all(mask):
            return results
        return tuple(result if asked else None for result, asked in zip(results, mask, strict=True))

    return masked
