"""What the lesson makes its values with: who gives a part another value before, changes what a check compares with."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Protocol

from fakegpu_lab.course.cell_text.bindings import DEFINITIONS, names, reachable
from fakegpu_lab.course.cell_text.source import binding, bound_names, tree_of
from fakegpu_lab.course.flags.names import names_loaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class _Cell(Protocol):
    id: str
    kind: str
    source: str


class MadeWith:
    """The statements of a lesson's cells that make what checks read, and all names that these need.

    Parameters
    ----------
    given, answers
        The texts of the lesson's own cells, and of its exercises with their solutions.
    read
        The names that the lesson's cells make and its checks read.
    """

    def __init__(self, given: Iterable[str], answers: Iterable[str], read: set[str]) -> None:
        trees = [tree for tree in map(tree_of, given) if tree is not None]
        statements = [(name, ast.dump(one), one) for tree in trees for one in tree.body for name in names(one)]
        inside = {name: names_loaded(one) for name, _, one in statements if isinstance(one, DEFINITIONS)}
        asked = {name for text in answers for name in bound_names(text)}
        modules = {name for name, _, one in statements if isinstance(one, (ast.Import, ast.ImportFrom))}  # see `policy`
        self._parts = {name for name, _, _ in statements} - asked - modules
        self._needed: dict[str, set[str]] = {}
        self._known = {text for _, text, _ in statements}
        for name, text, one in statements:
            if name in read:
                needs = reachable(names_loaded(one), lambda part: inside.get(part, ()))
                self._needed.setdefault(text, set()).update(needs & self._parts - {name})

    def flags(self, cells: Sequence[_Cell]) -> Iterator[str]:
        """For each part that a student's cell gives another value before it is used: where, which, and what for."""
        changed: dict[str, str] = {}
        for cell in cells:
            if cell.kind == "check":
                continue
            for name, text in binding(tree_of(cell.source)):
                if text in self._known:
                    for part in sorted(self._needed.get(text, set()) & changed.keys()):
                        yield f"{changed[part]}: gives {part}, with which the lesson makes {name}, another value"
                    changed.pop(name, None)
                elif cell.kind == "student" and name in self._parts:
                    changed[name] = cell.id
