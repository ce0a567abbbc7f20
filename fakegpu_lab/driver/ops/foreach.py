"""foreach ops over tensors of several devices, which CUDA runs one by one and not with its fused kernels.

See `can_use_fast_route` and the slow kernels in aten/src/ATen/native/ForeachUtils.h and ForeachOpsKernels.cpp. The
rules of the plain op then apply to each tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op


def one_by_one(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a foreach op on each position of its lists."""
    count = next(len(a) for a in args if isinstance(a, (list, tuple)))
    if op.name == "_foreach_copy_":
        for target, source in zip(args[0], args[1], strict=True):
            torch.ops.aten.copy_.default(target, source)
        return None
    results = [op.func(*(_at(a, i, count) for a in args), **kwargs) for i in range(count)]
    if op.written:
        return args[0] if op.returns else None
    return [result[0] for result in results]


def _at(argument: Any, position: int, count: int) -> Any:
    if isinstance(argument, (list, tuple)) and len(argument) == count:
        return [argument[position]]
    return argument
