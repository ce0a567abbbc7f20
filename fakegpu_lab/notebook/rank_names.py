"""The names that a rank's cell has: the notebook's, but its own.

As a process that was started for the rank would have them: what a cell changes is its rank's alone. Modules, optimizers
and containers that the cell, or a function that it calls, refers to are copied for each rank; functions that were
defined in the notebook are bound to the rank's names. Tensors of the host are shared, as `torch.multiprocessing` shares
them; so is what cannot be copied.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import torch

_OWNED = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler, list, dict, set, bytearray)
_LARGE = 16 << 20
"""Bytes of host tensors from which on a container is not copied with what is in it."""


def of_rank(names: dict[str, Any], code: types.CodeType) -> dict[str, Any]:
    """A rank's own names, for a cell with this code."""
    mine = dict(names)
    memo: dict[int, Any] = {}
    for name in _referred(names, code):
        value = names[name]
        if isinstance(value, _OWNED) and not name.startswith("_") and name not in ("In", "Out"):
            mine[name] = _copied(value, memo)
    rebind(mine, names, mine)
    return mine


def _copied(value: Any, memo: dict[int, Any]) -> Any:
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
    """Have the functions among `names` whose globals are `before` find their names in `after`."""
    for name, value in list(names.items()):
        if isinstance(value, types.FunctionType) and value.__globals__ is before:
            twin = types.FunctionType(value.__code__, after, value.__name__, value.__defaults__, value.__closure__)
            twin.__kwdefaults__ = value.__kwdefaults__
            twin.__qualname__, twin.__doc__, twin.__module__ = value.__qualname__, value.__doc__, value.__module__
            twin.__annotations__ = value.__annotations__
            vars(twin).update(vars(value))
            names[name] = twin


def changed(mine: dict[str, Any], start: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    """What a rank's cell has made or changed, as the notebook can have it: what was copied for it is among that."""
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
    """The names that code refers to, and those that the notebook's functions and classes among them refer to."""
    found: dict[str, None] = {}
    open_codes = [code]
    while open_codes:
        one = open_codes.pop()
        open_codes += [constant for constant in one.co_consts if isinstance(constant, types.CodeType)]
        for name in one.co_names:
            if name in names and name not in found:
                found[name] = None
                open_codes += _codes(names[name])
    return list(found)


def _codes(value: Any) -> list[types.CodeType]:
    if isinstance(value, types.FunctionType):
        return [value.__code__] if value.__module__ == "__main__" else []
    if isinstance(value, type) and value.__module__ == "__main__":
        return [member.__code__ for member in vars(value).values() if isinstance(member, types.FunctionType)]
    return []
