"""Reads a check's text: its statements, and what each of them is worth."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.cell_text.bindings import names_anywhere

if TYPE_CHECKING:
    from typing import TypeGuard

PREPARES = frozenset({"run", "draw"})
"""Functions of ``expect`` that expect nothing: a statement that calls only these is not a part."""

_COMPARES = frozenset({"close", "equal", "equals_single_device", "values"})
_BEGIN, _END = re.compile(r"#+ ?BEGIN HIDDEN TESTS", re.IGNORECASE), re.compile(r"#+ ?END HIDDEN TESTS", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A statement of a check.

    Attributes
    ----------
    points
        What it is worth; 0 if it only prepares other parts.
    hidden
        Whether it is between nbgrader's markers for hidden tests.
    expects
        Whether it calls ``expect``; other statements only prepare parts.
    names
        The names in which it runs, if not the student's.
    """

    statement: ast.stmt
    points: float
    hidden: bool
    expects: bool
    names: dict[str, Any] | None = None


def bound_in(parts: list[Part]) -> frozenset[str]:
    """The names that a check binds, also within its functions and comprehensions."""
    return frozenset[str]().union(*(names_anywhere(part.statement) for part in parts))


def parts(source: str) -> list[Part]:
    """Read a check's source: its statements, and what each is worth.

    Parameters
    ----------
    source
        The cell's source, with or without its ``%%check`` line.

    Raises
    ------
    ValueError
        A ``points=`` is not a plain number.
    """
    if source.lstrip().startswith("%%"):
        source = "\n" + source.lstrip().partition("\n")[2]
    return of_tree(ast.parse(source), source)


def of_tree(tree: ast.Module, source: str) -> list[Part]:
    """The same for a source that was parsed already."""
    hidden = _hidden_lines(source)
    found = []
    for statement in tree.body:
        calls = [node for node in ast.walk(statement) if is_expectation(node)]
        worth = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "points"]
        points = sum(_number(value) for value in worth) if worth else float(bool(calls))
        found.append(Part(statement, points, statement.lineno in hidden, bool(calls)))
    return found


def alone(statement: ast.stmt, source: str) -> str:
    """The text of one statement, where it stands: empty lines are in the place of what is before it."""
    first: int = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    text = "\n".join(source.split("\n")[first - 1 : statement.end_lineno])
    if statement.col_offset or len(ast.parse(text).body) > 1:  # others are in its line, after a semicolon
        text = str(ast.get_source_segment(source, statement))
    return "\n" * (first - 1) + text


def _hidden_lines(source: str) -> set[int]:
    lines, inside = set(), False
    for number, line in enumerate(source.splitlines(), 1):
        inside = bool(_BEGIN.search(line)) or (inside and not _END.search(line))
        if inside:
            lines.add(number)
    return lines


def is_expectation(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node calls ``expect.something`` or ``lab.expect.something``, and that expects anything."""
    return _of_expect(node) not in {"", *PREPARES}


def expected_names(source: str) -> set[str]:
    """The names with whose values a check compares: ``alone`` in ``expect.close(found, alone)``."""
    calls = [node for part in parts(source) for node in ast.walk(part.statement) if _of_expect(node) in _COMPARES]
    second = [call.args[1] for call in calls if isinstance(call, ast.Call) and len(call.args) > 1]
    return {one.id for one in second if isinstance(one, ast.Name)}


def is_run(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node calls ``expect.run``."""
    return _of_expect(node) == "run"


def has_expectation(statement: ast.AST) -> bool:
    """Whether a statement expects something, anywhere in it."""
    return any(map(is_expectation, ast.walk(statement)))


def has_run(statement: ast.AST) -> bool:
    """Whether a statement has an `expect.run`, anywhere in it."""
    return any(map(is_run, ast.walk(statement)))


def only_chooses(statement: ast.AST) -> bool:
    """Whether a statement looks at one choice, and at nothing else: what it says does not depend on other lines."""
    return {_of_expect(node) for node in ast.walk(statement)} - {""} == {"choice"}


def has_recording(statement: ast.AST) -> bool:
    """Whether a statement records what is in it: what an answer has left in the queues does not count."""
    return isinstance(statement, ast.With) and any(
        isinstance(one.context_expr, ast.Call) and ast.unparse(one.context_expr.func).split(".")[-1] == "record"
        for one in statement.items
    )


def _of_expect(node: ast.AST) -> str:
    """The function of ``expect`` that a node calls; empty if it calls none."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return ""
    owner = node.func.value
    return (
        node.func.attr if (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) == "expect" else ""
    )


def _number(value: ast.expr) -> float:
    if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)):
        return float(value.value)
    raise ValueError(f"points={ast.unparse(value)} must be a plain number: it is read from the check's text.")
