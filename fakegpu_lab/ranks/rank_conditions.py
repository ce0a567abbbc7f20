"""Finds the ``if rank == …`` around a line of the user's program."""

from __future__ import annotations

import ast
import linecache
import re

_MAGIC = re.compile(r"^([ \t]*)(?:%%?[a-z]|![^=]).*$", re.MULTILINE)
"""A line of a notebook's cell that is not Python, such as ``%%exercise zero1``."""


def rank_condition(line: str) -> tuple[int, str] | None:
    """The innermost ``if`` around a line whose condition mentions a rank, as line number and condition; or None."""
    file, _, number = line.rpartition(":")
    if not file:
        return None
    source = "".join(linecache.getlines(file))
    try:
        tree = ast.parse(_MAGIC.sub(r"\1pass", source))
    except SyntaxError:  # a file that has changed
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.If, ast.IfExp))
        and _governs(node, int(number))
        and "rank" in ast.unparse(node.test).lower()
    ]
    if not found:
        return None
    innermost = max(reversed(found), key=lambda node: node.lineno)
    return innermost.lineno, ast.unparse(innermost.test)


def _governs(node: ast.If | ast.IfExp, line: int) -> bool:
    """Whether an ``if`` decides if a line runs; a line in the condition itself always runs."""
    if not node.lineno <= line <= (node.end_lineno or 0):
        return False
    in_condition = node.lineno == line and node.test.lineno <= line <= (node.test.end_lineno or 0)
    inline = isinstance(node, ast.If) and node.body[0].lineno == line
    return inline or not in_condition
