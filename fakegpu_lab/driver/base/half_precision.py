"""float16 and bfloat16: CUDA computes them in float32 (`acc_type`, `opmath_t`) and rounds once.

Most of the CPU's kernels do the same. Some multiply in half precision without the processor's help, which is slow, or
round on the way; `benchmarks/half_kernels.py` finds them, and the op sheet names them (`Row.in_float32`). Only the
values are computed in float32: memory, kernels and FLOPs of the simulated device are those of the half-precision op.

Simplified: CUDA also rounds between the products of `linalg_matrix_exp` and of `addbmm`, and adds up the gradients of a
grid sampler in half precision, in an order of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    Kernel = Callable[..., Any]

HALVES: Final = (torch.float16, torch.bfloat16)
BOTH: Final = frozenset(HALVES)


def _slow_products() -> frozenset[torch.dtype]:
    if not torch._C._has_mkldnn:
        return BOTH
    mkldnn: Any = torch.ops.mkldnn
    fast = {
        torch.bfloat16: mkldnn._is_mkldnn_bf16_supported(),
        torch.float16: mkldnn._is_mkldnn_fp16_supported(),
    }
    return frozenset(dtype for dtype in HALVES if not fast[dtype])


SLOW_PRODUCTS: Final = _slow_products()
"""The halves whose products oneDNN does not compute on this processor.

Most processors have no instructions for one or both. Torch then multiplies element by element, up to 200 times as
slowly as in float32.
"""


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the dtype that CUDA computes it in."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def in_float32(
    call: Kernel,
    halves: Collection[torch.dtype],
    *,
    decides: int = 0,
    written: tuple[str, ...] = (),
    results: tuple[int, ...] | None = None,
    updates: tuple[int, ...] = (),
) -> Kernel:
    """`call`, with operands of the dtypes `halves` widened to float32, and results rounded back.

    Parameters
    ----------
    decides
        The position of the operand whose dtype decides. If another operand has another floating dtype, `call` gets all
        of them as they are, for its error, unless `results` says that they may differ.
    written
        Names of the arguments that the op writes to.
    results
        For each of the first results, the position of the argument whose dtype it gets; the others stay float32. By
        default, all results are rounded to the dtype that decides.
    updates
        Positions of arguments that `call` writes to without saying so: running statistics.
    """
    if not halves:
        return call

    def rounding(*args: Any, **kwargs: Any) -> Any:
        dtype = args[decides].dtype
        if dtype not in halves or (results is None and _mixed((*args, *kwargs.values()), dtype)):
            return call(*args, **kwargs)
        wide = [_wide(value, halves) for value in args]
        outcome = call(*wide, **{name: _wide(value, halves) for name, value in kwargs.items()})
        for position in updates:
            if args[position] is not None and args[position] is not wide[position]:
                args[position].copy_(wide[position])
        if results is not None:
            rounded = [_as(value, args[at], dtype) for value, at in zip(outcome, results, strict=False)]
            return *rounded, *outcome[len(rounded) :]
        outcome = tree_map(lambda value: _narrow(value, dtype), outcome)
        if written:
            targets = [kwargs[name] for name in written if name in kwargs] or [args[0]]
            for target, result in zip(targets, outcome if isinstance(outcome, tuple) else (outcome,), strict=True):
                into(target, result)
        return outcome

    return rounding


def _wide(value: Any, halves: Collection[torch.dtype]) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in halves else value


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value


def _as(value: Any, like: torch.Tensor | None, dtype: torch.dtype) -> Any:
    return None if value is None else value.to(dtype if like is None else like.dtype)


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
