"""A run of an exercise's cell: what it says, what it did on the machine, whether it is solved at all."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.trace import Trace


@dataclass
class Attempt:
    """What a student's cell was, and did.

    Attributes
    ----------
    exercise
        The exercise's id.
    name
        The cell's file name, as in the records' lines.
    tree
        Its statements; of None, it had a syntax error.
    trace
        What happened on the simulated GPUs while it ran; None if there were none.
    error
        What it raised, in one line; empty if nothing.
    unsolved
        Whether it is still as it was given out.
    """

    exercise: str
    name: str = ""
    tree: ast.Module | None = None
    trace: Trace | None = None
    error: str = ""
    unsolved: bool = False

    def made(self, name: str) -> str:
        """The last line that gave `name` its value, as ``file:number``; empty if none did."""
        lines = [line for bound, line in _bindings(self.tree) if bound == name] if self.tree is not None else []
        return f"{self.name}:{lines[-1]}" if lines else ""

    def calls(self) -> list[tuple[str, int]]:
        """Every call in the cell: the name as it is written (``torch.cuda.synchronize``) and the line."""
        return called(self.tree) if self.tree is not None else []


def called(tree: ast.AST) -> list[tuple[str, int]]:
    """Every call in a program: the name as it is written and the line, in the order of lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            text = ast.unparse(function) if isinstance(function, (ast.Name, ast.Attribute)) else ""
            found.append((text, (function.end_lineno or node.lineno)))
    return sorted(found, key=lambda call: call[1])


def _bindings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that is given a value, with the line: assignments, loops, `with`, imports, functions, classes."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.append((node.id, node.lineno))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append((node.name, node.lineno))
        elif isinstance(node, ast.alias):
            found.append(((node.asname or node.name).split(".")[0], node.lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            # `model.to("cuda")` gives model no value, and yet is what happened to it last.
            function = node.value.func
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                found.append((function.value.id, node.lineno))
    return iter(sorted(found, key=lambda binding: binding[1]))


def placeholder(tree: ast.Module) -> int | None:
    """The line of the first ``...`` that stands where a solution should; None if there is none.

    That is a statement, or what a name is set to: not an index such as ``x[..., 0]``, nor an argument.
    """
    for node in ast.walk(tree):
        if isinstance(node, (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)):
            value = node.value
            if isinstance(value, ast.Constant) and value.value is Ellipsis:
                return node.lineno
    return None


def unwritten(tree: ast.Module) -> bool:
    """Whether a bare ``raise NotImplementedError`` is left, also in a function that was not called yet."""
    return any(isinstance(node, ast.Raise) and _is_bare(node.exc) for node in ast.walk(tree))


def _is_bare(error: ast.expr | None) -> bool:
    if isinstance(error, ast.Call) and not error.args:
        error = error.func
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"
