"""Each rank's own copy of the notebook's names, for a ``%%ranks`` cell.

A rank has the names that a process of its own would have: what its cell changes, no other rank sees. Modules,
optimizers and containers that the cell, or a function that it calls, refers to are copied for each rank; functions
defined in the notebook are bound to the rank's names. Tensors on the host are shared, as `torch.multiprocessing` shares
them, and so is what cannot be copied.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import torch

_COPIED = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, list, dict, set, bytearray)
_LARGE = 16 << 20
"""A container with more bytes of host tensors than this is copied without its contents."""


def of_rank(names: dict[str, Any], code: types.CodeType) -> dict[str, Any]:
    """A rank's own names for a cell with this code."""
    mine = dict(names)
    memo: dict[int, Any] = {}
    for name in _referred(names, code):
        value = names[name]
        if isinstance(value, _COPIED) and not name.startswith("_") and name not in ("In", "Out"):
            mine[name] = _copy(value, memo)
    rebind(mine, names, mine)
    return mine


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    try:
        if not isinstance(value, (torch.nn.Module, torch.optim.Optimizer)) and _tensor_bytes(value) > _LARGE:
            return copy.copy(value)
        return copy.deepcopy(value, memo)
    except Exception:
        return value


def _tensor_bytes(value: Any) -> int:
    leaves = torch.utils._pytree.tree_leaves(value)
    return sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


def rebind(names: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Replace the functions in `names` whose globals are `before` by twins whose globals are `after`."""
    for name, value in list(names.items()):
        if isinstance(value, types.FunctionType) and value.__globals__ is before:
            twin = types.FunctionType(value.__code__, after, value.__name__, value.__defaults__, value.__closure__)
            twin.__kwdefaults__ = value.__kwdefaults__
            twin.__qualname__, twin.__doc__, twin.__module__ = value.__qualname__, value.__doc__, value.__module__
            twin.__annotations__ = value.__annotations__
            vars(twin).update(vars(value))
            names[name] = twin


def changed(mine: dict[str, Any], start: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """The names that a rank's cell made, changed or got a copy of, with functions bound to the notebook's names."""
    found = {
        name: value
        for name, value in mine.items()
        if name not in ("In", "Out", "__builtins__")
        and (name not in names or names[name] is not value)
        and not (isinstance(value, types.FunctionType) and start.get(name) is value)  # only bound to the rank's names
    }
    rebind(found, mine, names)
    return found


def _referred(names: dict[str, Any], code: types.CodeType) -> list[str]:
    """The names that code refers to, directly or through functions and classes of the notebook."""
    found: dict[str, None] = {}
    to_visit = [code]
    while to_visit:
        one = to_visit.pop()
        to_visit += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
        for name in one.co_names:
            if name in names and name not in found:
                found[name] = None
                to_visit += _codes(names[name])
    return list(found)


def _codes(value: Any) -> list[types.CodeType]:
    if isinstance(value, types.FunctionType):
        return [value.__code__] if value.__module__ == "__main__" else []
    if isinstance(value, type) and value.__module__ == "__main__":
        return [member.__code__ for member in vars(value).values() if isinstance(member, types.FunctionType)]
    return []
