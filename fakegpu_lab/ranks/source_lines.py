"""Lines of the user's program: the one that runs, and how messages quote them."""

from __future__ import annotations

import ast
import linecache
import re
import sys
from pathlib import Path
from typing import Any

from fakegpu_lab.driver.recorder.user_frames import is_users

_MAGIC = re.compile(r"^([ \t]*)(?:%%?[a-z]|![^=]).*$", re.MULTILINE)
"""A line of a notebook's cell that is not Python, such as ``%%exercise zero1``."""


def user_line() -> str:
    """The innermost line of the user's program on the calling thread's stack, as ``file:number``; or empty."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def described(line: str) -> str:
    """A line given as ``file:number``, as messages quote it: its number and its text."""
    file, _, number = line.rpartition(":")
    if not file:
        return "not in your program"
    text = linecache.getline(file, int(number)).strip()
    cell = file.startswith("<") or "ipykernel" in file
    where = f"line {number}" if cell else f"{Path(file).name}, line {number}"
    return f"{where}: {text}" if text else where


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
