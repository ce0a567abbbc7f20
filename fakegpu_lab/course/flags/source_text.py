"""A cell's text as Python, and the names that it binds."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TIMED = re.compile(r"^(\s*)%(?:time|timeit|memit)\b(?:\s+-\S+(?:\s+\d+)?)*[ \t]*", re.MULTILINE)


_TIMED_CELL = re.compile(r"%%timeit\b(?:\s+-[a-z]+\s*\d*\b)*[ \t]*")


def code_of(source: str) -> str:
    """Return a cell's Python, with blank lines in place of magics and shell commands."""
    lines = _body(source).split("\n")
    return "\n".join("" if re.match(r"\s*[%!?]", line) else line for line in lines)


def python_of(source: str) -> str:
    """Return a cell's Python, with calls in the place of magics and shell commands, as IPython runs it."""
    from IPython.core.inputtransformer2 import TransformerManager

    return str(TransformerManager().transform_cell(_TIMED.sub(r"\1", _body(source))))


def _body(source: str) -> str:
    """The cell without the magics that it begins with; their lines are empty."""
    lines = source.split("\n")
    for number, line in enumerate(lines):
        if timed := _TIMED_CELL.match(line):
            lines[number] = line[timed.end() :]
            continue
        if line.strip() and not line.startswith(
            ("%%time", "%%exercise", "%%check", "%%gpuprofile", "%%ranks", "%%capture")
        ):
            break
        lines[number] = ""
    return "\n".join(lines)


def bound_names(source: str, *, definitions_only: bool = False) -> set[str]:
    """Names that a cell binds at its top level; with `definitions_only`, those of imports, functions and classes.

    A cell that cannot be parsed binds none.
    """
    try:
        body = ast.parse(code_of(source)).body
    except SyntaxError:
        return set()
    found: set[str] = set()
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif not definitions_only:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found


def tree_of(source: str) -> ast.Module | None:
    """A cell's statements; None if it is no Python, and so cannot run."""
    try:
        return ast.parse(python_of(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def binding(tree: ast.Module | None) -> Iterator[tuple[str, str]]:
    """Each name that a cell binds at its top level, with the statement that does so."""
    for statement in tree.body if tree is not None else ():
        text = ast.dump(statement)
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name, text
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, text


def read_names(checks: Iterable[str], given: Iterable[str], answers: Iterable[str]) -> set[str]:
    """Names that a lesson's own cells make and its checks read.

    Parameters
    ----------
    checks, given, answers
        The texts of checks, of the lesson's other cells, and of its exercises with their solutions.
    """
    made = {name for source in given for name in bound_names(source)}
    read = set[str]()
    for source in checks:
        tree = tree_of(source)
        own = bound_names(source)
        inner = {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)} if tree is not None else set()
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in own | inner:
                read.add(node.id)
    return (read & made) - {name for source in answers for name in bound_names(source)}
