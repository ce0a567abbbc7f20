"""Makes submissions of a source notebook: with its solutions, with none, or with wrong ones that its author lists."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.grade.submissions import Submission

if TYPE_CHECKING:
    from collections.abc import Mapping

_BEGIN, _END = "BEGIN SOLUTION", "END SOLUTION"


def grade_id(cell: Any) -> str:
    """The cell's grade_id; empty if it has no nbgrader metadata."""
    return str(cell.metadata.get("nbgrader", {}).get("grade_id", ""))


def is_solution(cell: Any) -> bool:
    """Whether a student writes into the cell."""
    return bool(cell.metadata.get("nbgrader", {}).get("solution", False))


def replaced(source: str, code: str) -> str:
    r"""Replace what is between a cell's solution markers by `code`, indented like the markers.

    >>> print(replaced("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION", "return 2"))
    def f():
        return 2
    """
    if code.lstrip().startswith("%%"):
        return code
    lines: list[str] = []
    inside = replaced_once = False
    for line in source.split("\n"):
        if _BEGIN in line:
            inside = True
            if not replaced_once:
                indent = re.match(r"\s*", line)[0]  # type: ignore[index]
                lines += [indent + text if text else "" for text in code.rstrip("\n").split("\n")]
                replaced_once = True
        elif _END in line:
            inside = False
        elif not inside:
            lines.append(line)
    if replaced_once:
        return "\n".join(lines)
    first, newline, _ = source.lstrip().partition("\n")
    return f"{first}{newline}{code}" if first.startswith("%%") else code


def handed_in(source: Any, starter: Any, answers: Mapping[str, str] | None, student: str) -> Submission:
    """Return a submission: the starter with the solutions of the source, except for those in `answers`.

    Parameters
    ----------
    answers
        By grade_id, the whole source of an answer cell. With None, the starter stays untouched.
    """
    solutions = {grade_id(cell): cell.source for cell in source.cells if is_solution(cell)}
    cells = []
    for cell in starter.cells:
        name = grade_id(cell)
        text = cell.source
        if answers is not None and is_solution(cell) and name in solutions:
            text = answers.get(name, solutions[name])
        cells.append({"cell_type": cell.cell_type, "source": text, "metadata": dict(cell.metadata)})
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    return Submission(student=student, notebook=json.dumps(notebook).encode())
