"""Which values that a check computes with were changed in place while it ran: its answer may agree with anything then.

Digests of tensors are taken of their values on this computer: no copy, no simulated time, no record.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import weakref
import zlib
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.course.expect.plain_data.conversion import PLAIN, is_known, is_known_tensor, tensors_of_module

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import torch

_WHOLE = 2**16
"""Elements of a tensor whose values are all looked at; of a larger one, as many as this at most, evenly spaced."""
_FIRST = random.SystemRandom().random()
"""Where the first of these is, from 0 to 1 of their distance: nobody can spare them."""
_MOST_ITEMS, _DEEPEST = 1000, 5


class _Known(NamedTuple):
    thing: Callable[[], Any]
    state: Hashable
    text: str


_METHODS = (property, staticmethod, classmethod)


class InPlace:
    """What values were when they were first looked at; `changed` says which are different now.

    Tensors and models are not kept alive: a check that makes many of them needs their memory again.

    Parameters
    ----------
    is_lessons
        Whether the code of a file is the lesson's own: of objects of its classes, the attributes are looked at.
    """

    def __init__(self, is_lessons: Callable[[str], bool] = lambda file: False) -> None:
        self._known: dict[int, _Known] = {}
        self._is_lessons = is_lessons

    def look(self, thing: Any, text: str) -> None:
        """Remember what a tensor, a module, an optimizer or a container is now; `text` is how the check names it."""
        known = self._known.get(id(thing))
        if (known is None or known.thing() is not thing) and type(thing) not in PLAIN:
            state = self._state(thing)
            if state is not None:
                self._known[id(thing)] = _Known(_reference(thing), state, text)

    def changed(self) -> list[str]:
        """The texts of the values that have changed; all values are forgotten."""
        known, self._known = self._known, {}
        living = [(one, thing) for one in known.values() if (thing := one.thing()) is not None]
        return sorted({one.text for one, thing in living if self._state(thing) != one.state})

    def _state(self, thing: Any) -> Hashable:
        """As `_state`, and for an object of one of the lesson's classes."""
        state = _state(thing, 0)
        if state is None and not is_known(type(thing)) and any(map(self._is_lessons, _files_of(type(thing)))):
            state = repr([(name, _state(one, 1)) for name, one in sorted(getattr(thing, "__dict__", {}).items())])
        return state


def _files_of(kind: type) -> set[str]:
    """The files of a class's own methods."""
    codes = [getattr(one, "__code__", None) for one in vars(kind).values()]
    return {code.co_filename for code in codes if isinstance(code, CodeType)}


def _reference(thing: Any) -> Callable[[], Any]:
    """What returns a thing as long as it lives. A container is kept: nothing refers to it weakly."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: thing


def _state(thing: Any, depth: int) -> Hashable:
    """What tells a value before from the value after; None for what is not looked at."""
    import numpy as np
    import torch

    kind = type(thing)
    if kind in PLAIN:
        return repr(thing) if depth else None
    if issubclass(kind, torch.Tensor):
        return (_of_tensor(thing), thing.requires_grad, _hooks(thing)) if is_known_tensor(kind) else None
    if issubclass(kind, type) and not is_known(thing):
        return tuple((name, id(one)) for name, one in vars(thing).items() if callable(one) or isinstance(one, _METHODS))
    if kind is np.ndarray:
        return _of_array(thing) if thing.dtype.kind in "biufc" else None
    if issubclass(kind, torch.nn.Module):
        tensors = [(name, _of_tensor(one), one.requires_grad, _hooks(one)) for name, one in tensors_of_module(thing)]
        return *tensors, *((name, *_behaviour(one)) for name, one in torch.nn.Module.named_modules(thing))
    if issubclass(kind, torch.optim.Optimizer) and is_known(kind):
        groups = [{key: one for key, one in group.items() if key != "params"} for group in thing.param_groups]
        return repr(groups), _hooks(thing)
    if kind in (list, tuple, dict) and depth < _DEEPEST:  # a library's counters change by themselves
        items = itertools.chain(thing, thing.values() if kind is dict else ())
        return repr([_state(one, depth + 1) for one in itertools.islice(items, _MOST_ITEMS)])
    return None


def _behaviour(module: torch.nn.Module) -> tuple[Hashable, ...]:
    """What a module does, beside its tensors: its class, its hooks, and methods of its own."""
    own = [(name, id(one)) for name, one in vars(module).items() if callable(one)]
    return id(type(module)), _hooks(module), *sorted(own)


def _hooks(thing: Any) -> Hashable:
    """The hooks of a tensor, a module or an optimizer."""
    tables = [getattr(thing, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")]
    tables += [table for name, table in vars(thing).items() if "_hooks" in name]
    return tuple(id(hook) for table in tables if isinstance(table, dict) for hook in table.values())


def _of_tensor(thing: torch.Tensor) -> Hashable:
    import torch

    values = vars(thing).get("_inner", thing)
    with contextlib.suppress(RuntimeError, TypeError), torch.no_grad():  # sparse, of no storage, of no dtype of numpy's
        values = type(values).detach(values)
        if values.dtype == torch.bfloat16:
            values = values.view(torch.int16)
        return (tuple(thing.shape), _of_array(values.resolve_conj().resolve_neg().numpy()))
    return tuple(thing.shape)


def _of_array(values: Any) -> Hashable:
    flat = values.reshape(-1)
    step = flat.size // _WHOLE | 1  # odd: no column of a table is left out
    return values.shape, zlib.crc32(flat[int(step * _FIRST) :: step].tobytes())
