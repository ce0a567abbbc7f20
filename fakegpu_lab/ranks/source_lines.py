"""Lines of the user's program, as a diagnosis tells them."""

from __future__ import annotations

import ast
import linecache
from pathlib import Path


def told(line: str) -> str:
    """A line given as ``file:number``, as people read it: its number, its text."""
    file, _, number = line.rpartition(":")
    if not file:
        return "not in your program"
    text = linecache.getline(file, int(number)).strip()
    cell = file.startswith("<") or "ipykernel" in file
    where = f"line {number}" if cell else f"{Path(file).name}, line {number}"
    return f"{where}: {text}" if text else where


def condition(line: str) -> tuple[int, str] | None:
    """The innermost ``if`` around a line that asks for the rank: its line number and its text; or None."""
    file, _, number = line.rpartition(":")
    if not file:
        return None
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a notebook's cell with magics, a file that has changed
        return None
    found: ast.If | ast.IfExp | None = None
    wanted = int(number)
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp)) and node.lineno <= wanted <= (node.end_lineno or 0):
            within_test = node.test.lineno <= wanted <= (node.test.end_lineno or 0) and node.lineno == wanted
            inline = isinstance(node, ast.If) and node.body[0].lineno == wanted
            if (not within_test or inline) and "rank" in ast.unparse(node.test).lower():
                found = node if found is None or node.lineno >= found.lineno else found
    return (found.lineno, ast.unparse(found.test)) if found is not None else None
