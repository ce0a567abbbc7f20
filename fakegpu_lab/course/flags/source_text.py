"""A cell's text as Python, and the names that it binds."""

from __future__ import annotations

import ast
import re

_TIMED = re.compile(r"^(\s*)%(?:time|timeit|memit)\b(?:\s+-\S+(?:\s+\d+)?)*[ \t]*", re.MULTILINE)


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
