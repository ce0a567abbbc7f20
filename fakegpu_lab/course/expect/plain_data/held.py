"""The tensors that values hold: in containers, modules, optimizers, objects, and what functions were made with."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.plain_data.conversion import PLAIN

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

_MOST = 20_000
"""Objects that are looked at."""


def tensors_in(things: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors that can be reached from some values, gradients and an optimizer's state included.

    The names that a function looks up when it runs are not followed, only what was given to it: its defaults, what it
    is bound to, and the variables around it.
    """
    import torch

    found, visited, waiting = list[torch.Tensor](), dict[int, Any](), [*things]
    while waiting and len(visited) < _MOST:
        thing = waiting.pop()
        kind = type(thing)
        if kind in PLAIN or id(thing) in visited or isinstance(thing, (type, types.ModuleType)):
            continue
        visited[id(thing)] = thing
        if issubclass(kind, torch.Tensor):
            found.append(thing)
            if thing.is_leaf and thing.grad is not None:
                waiting.append(thing.grad)
        elif issubclass(kind, dict):
            waiting += [*dict.keys(thing), *dict.values(thing)]
        elif issubclass(kind, (list, tuple, set, frozenset)):
            waiting += list(thing)
        elif kind is types.FunctionType:
            waiting += [*(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
            waiting += [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
        elif kind is types.MethodType:
            waiting += [thing.__self__, thing.__func__]
        elif kind is functools.partial:
            waiting += [thing.func, *thing.args, *thing.keywords.values()]
        elif not kind.__module__.startswith("fakegpu_lab."):  # a recording knows its machine
            waiting += list(getattr(thing, "__dict__", {}).values())
    return found


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it raises if there is nothing
    except ValueError:
        return False
    return True
