"""Inside a submission's process: what tables, signatures and closures hold, remembered and put back.

Who has an expectation has its closure, and so the table in it, and what that holds. Nothing here calls a method of what
a submission may have put there: everything is compared by its identity.
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

CODE_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
"""What a function does, as attributes of it."""


class Contents:
    """What things hold, with what that holds in turn.

    Parameters
    ----------
    trusted
        Whether code is that of an installed library: of other functions nothing is remembered.
    """

    def __init__(self, trusted: Callable[[types.CodeType], bool]) -> None:
        self._trusted = trusted
        self._kept: dict[int, tuple[str, Any, tuple[Any, ...]]] = {}

    def keep(self, where: str, thing: Any) -> None:
        """Remember what `thing` holds; `where` is its name for people."""
        look = _LOOKS.get(type(thing))
        if look is None or id(thing) in self._kept:
            return
        if type(thing) is types.FunctionType and not self._trusted(thing.__code__):
            return
        self._kept[id(thing)] = where, thing, look(thing)
        inner = [*look(thing), *(thing.__closure__ or ())] if type(thing) is types.FunctionType else look(thing)
        for one in inner:
            self.keep(where, one)

    def put_back(self) -> list[str]:
        """Restore what was changed, and return the names."""
        found = []
        for where, thing, kept in self._kept.values():
            now = _LOOKS[type(thing)](thing)
            if len(now) != len(kept) or any(one is not other for one, other in zip(now, kept, strict=True)):
                _FILLS[type(thing)](thing, kept)
                found.append(where)
        return found


def _parts(function: types.FunctionType) -> tuple[Any, ...]:
    return tuple(getattr(function, part) for part in CODE_PARTS)


def _set_parts(function: types.FunctionType, parts: tuple[Any, ...]) -> None:
    for name, value in zip(CODE_PARTS, parts, strict=True):
        setattr(function, name, value)


def _cell(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing is in it yet
        return ()


def _fill_cell(cell: types.CellType, content: tuple[Any, ...]) -> None:
    if content:
        cell.cell_contents = content[0]


def _parameters(signature: inspect.Signature) -> tuple[Any, ...]:
    return tuple(part for one in signature.parameters.values() for part in (one.name, one.kind, one.default))


def _set_parameters(signature: inspect.Signature, parts: tuple[Any, ...]) -> None:
    rows = zip(parts[::3], parts[1::3], parts[2::3], strict=True)
    made = inspect.Signature([inspect.Parameter(name, kind, default=default) for name, kind, default in rows])
    signature._parameters = made.parameters  # type: ignore[attr-defined]


def _fill(table: Any, content: tuple[Any, ...]) -> None:
    table.clear()
    if type(table) is dict:
        table.update(zip(content[::2], content[1::2], strict=True))
    else:
        (table.extend if type(table) is list else table.update)(content)


_LOOKS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    dict: lambda table: tuple(part for pair in table.items() for part in pair),
    list: tuple,
    set: lambda table: tuple(sorted(table, key=id)),
    tuple: tuple,
    types.CellType: _cell,
    types.FunctionType: _parts,
    inspect.Signature: _parameters,
}
_FILLS: dict[type, Callable[[Any, tuple[Any, ...]], None]] = {
    dict: _fill,
    list: _fill,
    set: _fill,
    types.CellType: _fill_cell,
    types.FunctionType: _set_parts,
    inspect.Signature: _set_parameters,
}
"""A tuple holds what it held."""
