"""Compiling and running the body of a cell magic, so that errors point at the cell's own lines."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple


class Cell(NamedTuple):
    """A cell's code.

    Attributes
    ----------
    name
        The file name under which tracebacks and `linecache` find it.
    tree
        Its statements. The first line below the magic is line 2, as in the notebook.
    source
        Its text as Python, with an empty line in place of the magic.
    """

    name: str
    tree: ast.Module
    source: str


def parse(shell: Any, text: str) -> Cell:
    """Parse the text below a cell magic.

    Raises
    ------
    SyntaxError
        If the text is not valid Python; with the cell's own line.
    """
    __tracebackhide__ = True
    try:
        source = "\n" + shell.transform_cell(text)
    except SyntaxError as error:  # of the indentation, which IPython counts without the magic's line
        error.lineno = (error.lineno or 0) + 1
        raise
    number = len(shell.user_ns.get("In", ["", ""])) - 1
    name = shell.compile.cache(source, number, raw_code=source)
    try:
        tree = shell.compile.ast_parse(source, name)
    except SyntaxError as error:
        if error.msg == "incomplete input":
            ast.parse(source, name)  # says what is missing
        raise
    return Cell(name, shell.transform_ast(tree), source)


def run(shell: Any, cell: Cell, names: dict[str, Any]) -> Any:
    """Run a cell; return the value of its last statement if that is an expression, else None."""
    __tracebackhide__ = True
    body, last = cell.tree.body, None
    if body and isinstance(body[-1], ast.Expr):
        last, body = body[-1].value, body[:-1]
    exec(shell.compile(ast.Module(body, cell.tree.type_ignores), cell.name, "exec"), names)
    return eval(shell.compile(ast.Expression(last), cell.name, "eval"), names) if last is not None else None
