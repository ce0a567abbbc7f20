"""One run of an exercise's cell: its source, what it did on the machine, and whether it is solved at all."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakegpu_lab.course.cell_text.bindings import DEFINITIONS, bindings, names
from fakegpu_lab.course.cell_text.reached import calls as reachable
from fakegpu_lab.course.cell_text.source import root_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from fakegpu_lab.trace import Trace


@dataclass
class Attempt:
    """A student's cell, and what it did.

    Attributes
    ----------
    exercise
        The exercise's id.
    name
        The cell's file name, as in the lines of records.
    tree
        Its statements; None after a syntax error.
    trace
        What happened on the simulated GPUs while it ran; None if there were none.
    error
        The error that it raised, in one line; may be empty.
    unsolved
        Whether it is still as students get it.
    created
        The names that did not exist before it ran.
    elsewhere
        The names that the notebook's other cells read; None if that is not known.
    """

    exercise: str
    name: str = ""
    tree: ast.Module | None = None
    trace: Trace | None = None
    error: str = ""
    unsolved: bool = False
    created: set[str] = field(default_factory=set)
    elsewhere: Collection[str] | None = None

    @property
    def unreadable(self) -> bool:
        """Whether it is no valid Python, so that nothing in it ran."""
        return self.tree is None and self.error.startswith(("SyntaxError", "IndentationError", "TabError"))

    def assigned(self) -> set[str]:
        """Names that the cell assigns at its top level, by whatever statement."""
        return names(self.tree) if self.tree is not None else set()

    def made(self, name: str) -> str:
        """The last line that made `name` what it is, as ``file:number``; empty if none did."""
        lines = _lines(self.tree, name) if self.tree is not None else []
        return f"{self.name}:{max(lines)}" if lines else ""

    def calls(self, *, reached: bool = False) -> list[tuple[str, int]]:
        """Every call in the cell: the name as written (``torch.cuda.synchronize``), and the line.

        With `reached`, only those that can run.
        """
        return called(self.tree, reached=reached, elsewhere=self.elsewhere) if self.tree is not None else []


def called(
    tree: ast.Module, *, reached: bool = False, elsewhere: Collection[str] | None = None
) -> list[tuple[str, int]]:
    """Every call in a program: the name as written, and the line, in the order of lines.

    Parameters
    ----------
    reached
        Whether to leave out what can never run, and calls of what the program itself gave such a name.
    elsewhere
        For that: the names that the rest of the notebook reads; None if that is not known.
    """
    found, own = [], _OwnWords(tree)
    for node in reachable(tree, elsewhere) if reached else ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            text = ast.unparse(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
            if reached and own.calls(function):
                continue
            found.append((text, (function.end_lineno or node.lineno)))
    return sorted(found, key=lambda call: call[1])


class _OwnWords:
    """What a program itself defines: its functions and methods, also those that have the name of a library's."""

    def __init__(self, tree: ast.Module) -> None:
        nodes = [*ast.walk(tree)]
        self._made = {one.name for one in nodes if isinstance(one, DEFINITIONS)}
        self._made |= {one.attr for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)}
        self._made |= {one.arg for one in nodes if isinstance(one, ast.keyword) and one.arg}
        self._bound = self._made | {one.arg for one in nodes if isinstance(one, ast.arg)}
        self._bound |= {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}

    def calls(self, function: ast.expr) -> bool:
        """Whether a function that is called may be one of these: ``mine.synchronize``, but not ``torch.cuda.…``."""
        root = root_of(function)
        if isinstance(function, ast.Name):
            return function.id in self._made
        own = not isinstance(root, ast.Name) or root.id in self._bound
        return isinstance(function, ast.Attribute) and function.attr in self._made and own


def _lines(tree: ast.Module, name: str) -> list[int]:
    """The lines that bind a name, at the top level or, if none does, in functions; and those that call its methods.

    ``model.to("cuda")`` does not assign `model`, but it is the last thing that happened to it. Where a function or a
    class is defined says nothing of what it does.
    """
    inner = [one for one in ast.walk(tree) if isinstance(one, DEFINITIONS)]
    if any(one.name == name for one in inner if one in tree.body):
        return []
    found = [line for bound, line in bindings(tree) if bound == name]
    found = found or [line for one in inner for part in one.body for bound, line in bindings(part) if bound == name]
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                found += [node.lineno] if function.value.id == name else []
    return found


def placeholder(tree: ast.Module) -> int | None:
    """The line of the first ``...`` in place of a solution; None if there is none.

    It counts as a statement or as an assigned value, not as an argument or an index such as ``x[..., 0]``, nor if the
    name that it is assigned to gets a value elsewhere in the cell, nor as the body of a function that has none: of a
    ``Protocol``, an ``overload``, an ``abstractmethod``.
    """
    left, bound = [], set[str]()
    empty = {id(one) for node in ast.walk(tree) for function in _declared(node) for one in function.body}
    for node in ast.walk(tree):
        if id(node) in empty:
            continue
        if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            value, targets = node.value, getattr(node, "targets", [getattr(node, "target", None)])
            names = {one.id for one in targets if isinstance(one, ast.Name)}
            if isinstance(value, ast.Constant) and value.value is Ellipsis:
                left.append((node.lineno, names))
            else:
                bound |= names
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
    return next((line for line, names in left if not names or not names <= bound), None)


def _declared(node: ast.AST) -> list[ast.FunctionDef]:
    """The functions that a node only declares."""
    if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
        return [one for one in node.body if isinstance(one, ast.FunctionDef)]
    if isinstance(node, ast.FunctionDef):
        names = [ast.unparse(one).rpartition(".")[2] for one in node.decorator_list]
        return [node] if {"overload", "abstractmethod"} & set(names) else []
    return []


def unwritten(tree: ast.Module) -> bool:
    """Whether a bare ``raise NotImplementedError`` is left, even in a function that was not called yet."""
    return any(isinstance(node, ast.Raise) and _is_bare_not_implemented(node.exc) for node in ast.walk(tree))


def _is_bare_not_implemented(error: ast.expr | None) -> bool:
    if isinstance(error, ast.Call) and not error.args:
        error = error.func
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"
