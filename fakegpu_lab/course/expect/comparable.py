"""What a check may compare and compute with: values that do not answer for themselves."""

from __future__ import annotations

import functools
import itertools
import sys
import types
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.outcome import running_check
from fakegpu_lab.course.expect.plain_data.conversion import (
    DEEPEST,
    PLAIN,
    RECORDS,
    is_known,
    is_known_tensor,
    is_public,
    replaced_method,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAYS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__bool__", "__class__", "__getattribute__",
         "__torch_function__", "__torch_dispatch__")  # fmt: skip
_ARITHMETIC = ("add", "and", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub", "truediv",
               "xor")  # fmt: skip
_COMPUTES = frozenset(f"__{form}{name}__" for name in _ARITHMETIC for form in ("", "r", "i"))
_COMPUTES |= {"__abs__", "__neg__", "__float__", "__int__", "__index__", "__round__"}
_COMPARED = frozenset(
    ["_io", "abc", "array", "builtins", "collections", "datetime", "decimal", "enum", "fakegpu_lab", "fractions",
     "numbers",
     "numpy", "pandas", "pathlib", "torch", "typing", "uuid"]
)  # fmt: skip
"""Libraries whose classes compare as anybody expects. In others, a comparison may make an expression, which is true."""
_MOST_ITEMS = 1000


def comparable(thing: Any, depth: int = 0) -> Any:
    """Return a value that a check compares.

    Raises
    ------
    TypeError
        Its class, or that of an item, says itself what it equals, or that it is another class.
    """
    kind = type(thing)
    for one in type.mro(kind) if not is_known_tensor(kind) else ():
        says = [name for name in _SAYS if name in vars(one)]
        library = str(one.__module__).partition(".")[0]
        if says and not (library in _COMPARED and (is_known(one) or is_public(one))):
            raise TypeError(f"A check compares plain values: the class {one.__name__} defines its own {says[0]}.")
    own = replaced_method(thing) if is_known_tensor(kind) else ""
    if own:
        raise TypeError(f"A check compares plain values: this tensor has a method {own} of its own.")
    if depth < DEEPEST:
        for item in itertools.islice(_items(thing), _MOST_ITEMS):
            comparable(item, depth + 1)
    return thing


def _items(thing: Any) -> Iterator[Any]:
    """The items of a container, by its own iterator."""
    for kind in (list, tuple, set, frozenset):
        if issubclass(type(thing), kind):
            return iter(kind.__iter__(thing))
    return iter([*dict.keys(thing), *dict.values(thing)]) if issubclass(type(thing), dict) else iter(())


def genuine(thing: Any, text: str = "") -> Any:
    """Return a value that a check computes with; `text` is how the check names it.

    Raises
    ------
    TypeError
        It is a tensor of a class of the notebook's own, or with a method of its own: it answers itself what torch is
        asked. Or it is of a class of the notebook's own that says itself what it adds up to.
    """
    import torch

    if issubclass(type(thing), torch.Tensor):
        comparable(thing)
    elif type(thing) not in PLAIN and not is_known(type(thing)):
        kinds = [one for one in type.mro(type(thing)) if not (is_known(one) or is_public(one))]
        says = {name for one in kinds for name in _COMPUTES & vars(one).keys() if not _is_compiled(vars(one)[name])}
        if says:
            name = type(thing).__name__
            raise TypeError(f"A check computes with plain numbers: the class {name} defines its own {min(says)}.")
    check = running_check()
    if text and check is not None and check.used is not None:
        check.used.look(thing, text)
    return thing


def _is_compiled(method: object) -> bool:
    """Whether a method is C's or C++'s, as those of torch's enumerations are."""
    compiled = (types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType)
    return isinstance(method, compiled) or type(method).__name__ == "instancemethod"


def asked(thing: Any, name: str) -> Any:
    """Return a value of which a check reads an attribute. If the answer itself says what that is, it is noted.

    Raises
    ------
    TypeError
        A recording's records are read of something else, which could be made by hand.
    """
    kind = type(genuine(thing))
    ours = is_known(kind) and kind.__module__.startswith("fakegpu_lab.")
    if name in RECORDS and not ours and kind is not types.ModuleType:
        raise TypeError(f"A check reads `{name}` of a recording (lab.record()), and this is a {kind.__name__}.")
    check = running_check()
    if check is not None and _answers(thing, kind, name):
        check.answered.append((thing if issubclass(kind, type) else kind, name))
    return thing


def _answers(thing: Any, kind: type, name: str) -> bool:
    """Whether an object of a class of the notebook's own, or one that is filled by hand, says what an attribute is."""
    if _is_filled_by_hand(kind):
        return True
    is_class = issubclass(kind, type)
    if not is_class and callable(getattr(thing, "__dict__", {}).get(name)) and hasattr(kind, name):
        return True
    if is_class and is_known(thing):  # a library's: its own class, in turn, may have no public name
        return False
    for one in (*(type.mro(thing) if is_class else ()), *type.mro(kind)):
        if name in vars(one):
            return not (is_known(one) or is_public(one) or _is_of_package(one))
    if is_known(kind) or is_public(kind) or _is_of_package(kind):
        return False
    held = vars(thing).get(name) if hasattr(thing, "__dict__") else None
    return held is not None and not isinstance(held, _seen_by_themselves())


def _is_of_package(kind: type) -> bool:
    """Whether a class is one of this package's: the driver's tensors are called as torch's."""
    return _has_package(id(kind))


@functools.cache
def _has_package(number: int) -> bool:
    """Whether this package has the class whose `id` it is; classes of it stay. No answer can write to this cache."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("fakegpu_lab.")]
    return any(id(one) == number for module in ours for one in list(vars(module).values()))


def _is_filled_by_hand(kind: type) -> bool:
    return any(f"{one.__module__}.{one.__qualname__}" in _FILLED for one in type.mro(kind))


_FILLED = frozenset({"types.SimpleNamespace", "unittest.mock.NonCallableMock", "argparse.Namespace"})
"""Classes of Python's whose objects have whatever attributes they are given."""


def _seen_by_themselves() -> tuple[type, ...]:
    """Types that are looked at like any other value when a check asks an own object for them."""
    import torch

    return torch.Tensor, torch.nn.Module
