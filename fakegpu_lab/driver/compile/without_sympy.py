"""Shape functions that do not import sympy, as long as all sizes are plain numbers.

Many of torch's shape functions in Python call `torch.fx.experimental.symbolic_shapes`, to treat plain sizes and
symbolic ones alike, and that module imports sympy: 31 MiB in each process, and two seconds. Until somebody needs more
of it, a module takes its place that has only the functions that shape functions call, and that passes everything but
plain values on to the real one, which it then imports.
"""

from __future__ import annotations

import builtins
import functools
import operator
import sys
import types
from typing import TYPE_CHECKING, Any

import torch._prims_common
import torch.fx.experimental
from torch.utils._ordered_set import OrderedSet

from fakegpu_lab.driver.base.deferred_patches import NotImported

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches

_NAME = "torch.fx.experimental.symbolic_shapes"


def _the_same(value: Any) -> Any:
    return value


def _all(first: bool, *others: bool) -> bool:
    return functools.reduce(operator.and_, others, first)


def _any(first: bool, *others: bool) -> bool:
    return functools.reduce(operator.or_, others, first)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, int):
        return bool(one == other)
    return tuple(one) == tuple(other)


def _is_truth(value: object) -> bool:
    return value is True or value is False


def _is_size(value: object) -> bool:
    return value.__class__ is int


def _is_shape(value: object) -> bool:
    return _is_size(value) or (isinstance(value, (tuple, list)) and all(size.__class__ is int for size in value))


def _is_tensor(value: object) -> bool:
    return value.__class__ is torch.Tensor and _is_shape(value.shape) and _is_shape(value.stride())


_PLAIN: dict[str, tuple[Callable[..., Any], Callable[[object], bool]]] = {
    "expect_true": (_the_same, _is_truth),
    "free_unbacked_symbols": (lambda tensor: OrderedSet(), _is_tensor),
    "guard_bool": (_the_same, _is_truth),
    "guard_int": (_the_same, _is_size),
    "guard_or_false": (_the_same, _is_truth),
    "guard_or_true": (_the_same, _is_truth),
    "guard_size_oblivious": (_the_same, _is_truth),
    "guarding_hint_or_throw": (_the_same, _is_size),
    "has_guarding_hint": (lambda size: True, _is_size),
    "is_nested_int": (lambda size: False, _is_size),
    "size_hint": (_the_same, _is_size),
    "statically_known_true": (_the_same, _is_truth),
    "sym_and": (_all, _is_truth),
    "sym_eq": (_equal, _is_shape),
    "sym_or": (_any, _is_truth),
}
"""What symbolic_shapes.py makes of plain values, and which values are plain."""


class _Plain(NotImported):
    """`torch.fx.experimental.symbolic_shapes`, for plain values."""

    def __init__(self) -> None:
        super().__init__(_NAME)
        for name, (function, is_plain) in _PLAIN.items():
            setattr(self, name, self._for_plain(name, function, is_plain))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            self.leave()  # or importing it would find this module
        return super().__getattr__(name)

    def _for_plain(self, name: str, function: Callable[..., Any], is_plain: Callable[[object], bool]) -> Any:
        def plain(*values: Any, **options: Any) -> Any:
            if not options and all(map(is_plain, values)):
                return function(*values)
            return self.__getattr__(name)(*values, **options)

        return plain

    def leave(self) -> None:
        """Make room for the real one."""
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        if vars(torch.fx.experimental).get("symbolic_shapes") is self:
            del torch.fx.experimental.symbolic_shapes


_CALLERS = ("elementwise_dtypes", "_is_non_overlapping_and_dense_or_false")
"""Functions of torch._prims_common that import sympy themselves: to know its classes when they meet them."""
_NO_SYMPY = types.SimpleNamespace(Basic=type("Basic", (), {}), Max=max)


def _import(name: str, *rest: Any) -> Any:
    return _NO_SYMPY if "sympy" in name else __import__(name, *rest)


def _without_sympy(function: Any) -> Callable[..., Any]:
    """`function`, whose own code imports classes of which there are no objects, as long as sympy is not imported."""
    names = vars(torch._prims_common) | {"__builtins__": vars(builtins) | {"__import__": _import}}
    light = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return (function if "sympy" in sys.modules else light)(*args, **kwargs)

    return plain


def install(patches: Patches) -> None:
    """Put the small module in the place of the large one, unless that is imported."""
    if _NAME in sys.modules:
        return
    for name in _CALLERS:
        if function := vars(torch._prims_common).get(name):
            patches.set(torch._prims_common, name, _without_sympy(function))
    plain = _Plain()
    sys.modules[_NAME] = plain
    torch.fx.experimental.symbolic_shapes = plain
    patches.later(plain.leave)
