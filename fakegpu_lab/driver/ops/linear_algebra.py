"""Solvers and decompositions of complex matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def conjugating(op: Op, call: Kernel) -> Kernel:
    """`call`, with the dispatcher's fallbacks for conjugate and negative views switched on.

    Its CPU kernel makes such views and relies on the dispatcher to resolve them. The fallbacks run above
    `__torch_dispatch__` and are then off for the op and everything that its kernel calls.
    """
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey

    def conjugating(*args: Any, **kwargs: Any) -> Any:
        with guard(keys.Conjugate, False), guard(keys.Negative, False):
            return tree_map(_resolved, call(*args, **kwargs))

    return conjugating


def _resolved(value: Any) -> Any:
    return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value
