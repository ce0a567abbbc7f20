"""One run of an exercise's cell: its source, what it did on the machine, and whether it is solved at all."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    """

    exercise: str
    name: str = ""
    tree: ast.Module | None = None
    trace: Trace | None = None
    error: str = ""
    unsolved: bool = False
    created: set[str] = field(default_factory=set)

    def assigned(self) -> set[str]:
        """Names that the cell assigns at its top level, by whatever statement."""
        return {name for name, _ in _bindings(self.tree)} if self.tree is not None else set()

    def made(self, name: str) -> str:
        """The last line that assigned `name`, as ``file:number``; empty if none did."""
        lines = [line for bound, line in _bindings(self.tree) if bound == name] if self.tree is not None else []
        return f"{self.name}:{lines[-1]}" if lines else ""

    def calls(self) -> list[tuple[str, int]]:
        """Every call in the cell: the name as written (``torch.cuda.synchronize``), and the line."""
        return called(self.tree) if self.tree is not None else []


def called(tree: ast.AST) -> list[tuple[str, int]]:
    """Every call in a program: the name as written, and the line, in the order of lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            text = ast.unparse(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
            found.append((text, (function.end_lineno or node.lineno)))
    return sorted(found, key=lambda call: call[1])


def _bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is assigned, with the line: by assignments, loops, `with`, imports, functions and classes."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append((node.id, node.lineno))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append((node.name, node.lineno))
        elif isinstance(node, ast.alias):
            found.append(((node.asname or node.name).split(".")[0], node.lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # `model.to("cuda")` does not assign model, but it is the last thing that happened to it.
            function = node.value.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                found.append((function.value.id, node.lineno))
    return iter(sorted(found, key=lambda binding: binding[1]))


def placeholder(tree: ast.Module) -> int | None:
    """The line of the first ``...`` in place of a solution; None if there is none.

    It counts as a statement or as an assigned value, not as an argument or an index such as ``x[..., 0]``.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            value = node.value
            if isinstance(value, ast.Constant) and value.value is Ellipsis:
                return node.lineno
    return None


def unwritten(tree: ast.Module) -> bool:
    """Whether a bare ``raise NotImplementedError`` is left, even in a function that was not called yet."""
    return any(isinstance(node, ast.Raise) and _is_bare_not_implemented(node.exc) for node in ast.walk(tree))


def _is_bare_not_implemented(error: ast.expr | None) -> bool:
    if isinstance(error, ast.Call) and not error.args:
        error = error.func
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"
