"""Makes submissions of a source notebook, with its solutions, with none, or with wrong ones, and grades them together.

Grading many wrong answers in one run of the notebook takes much less time than a run for each. Each exercise is tried
with one wrong answer after the other, as a student would, and then with its solution. The names of the notebook and the
states of the random number generators are restored in between. What else an answer leaves behind (a file, a changed
model) may affect the next one, so a result counts only if the solution still earns all points afterwards. `check`
grades the rest separately, and so everything that does not fail as its author says.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.course.grade import repair
from fakegpu_lab.course.grade.examiner import Examiner
from fakegpu_lab.course.grade.one_submission import score
from fakegpu_lab.course.grade.outcome import CheckOutcome
from fakegpu_lab.course.grade.sandbox.process import EndedError, Sandbox
from fakegpu_lab.course.grade.submissions import Submission

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.sandbox.limits import Limits


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


_KEEP = """
def __keep():
    import random, numpy, torch
    return random.getstate(), numpy.random.get_state(), torch.get_rng_state(), [
        (i, torch.cuda.get_rng_state(i)) for i in range(torch.cuda.device_count())]
__kept = __keep()
del __keep
__kept = dict(globals()), __kept
"""
_RESTORE = """
def __restore(names, states):
    import gc, random, numpy, torch
    globals().clear()
    globals().update({name: value for name, value in names.items() if name != "__kept"})
    random.setstate(states[0])
    numpy.random.set_state(states[1])
    torch.set_rng_state(states[2])
    for i, state in states[3][:torch.cuda.device_count()]:
        torch.cuda.set_rng_state(state, i)
    gc.collect()
__restore(*__kept)
"""


class Answer(NamedTuple):
    """The source of an exercise's cell, to be tried in the place of its solution."""

    exercise: str
    source: str


def grade_together(
    right: Submission, lesson: GradedLesson, limits: Limits, answers: list[Answer]
) -> dict[Answer, CheckOutcome]:
    """Run a submission with every solution, and before each solution the answers to its exercise.

    Returns
    -------
    What each answer earned. Those are missing of which that is not certain: they must be graded separately.
    """
    known: dict[Answer, CheckOutcome] = {}
    magic = "%%exercise {0.exercise}\n".format
    waiting = list(dict.fromkeys(one for one in answers if one.source.lstrip().startswith(magic(one))))
    while waiting:
        tried: list[Answer] = []
        with contextlib.suppress(OSError, RuntimeError):  # no process could be started
            for answer, outcome in _run(right, lesson, limits, waiting):
                tried.append(answer)
                if outcome is not None:
                    known[answer] = outcome
        if not tried:
            break
        waiting = [answer for answer in waiting if answer not in tried]
    return known


def _run(
    right: Submission, lesson: GradedLesson, limits: Limits, answers: list[Answer]
) -> Iterator[tuple[Answer, CheckOutcome | None]]:
    """Each answer that was tried, and what it earned; None if that is not certain."""
    cells = repair.repair(lesson, repair.read(right.notebook)).cells
    checks = {cell.id: cell for cell in cells if cell.kind == "check"}
    exercises = [cell.id for cell in cells if cell.answer and f"{cell.id}-check" in checks]
    tries = {name: [answer for answer in answers if answer.exercise == name] for name in exercises}
    last = max((i for i, cell in enumerate(cells) if tries.get(cell.id.removesuffix("-check"))), default=-1)
    examiner = Examiner(lesson)
    about: dict[str, Any] = {"given": list(lesson.files), "read": sorted(lesson.read), "allow": lesson.allow}
    sandbox = Sandbox(lesson.files, limits, [], name=lesson.name, **about)

    def run(cell: repair.Cell) -> CheckOutcome:
        message = sandbox.run(examiner.job(cell))
        examiner.remember(cell, message)
        outcome = CheckOutcome(grade_id=cell.id, points=0.0, max_points=points.get(cell.id, 0.0))
        if cell.kind == "check":
            score(outcome, cell.source, message, set(), examiner.judge(message))
        if message["interrupted"]:
            outcome.wrong = ["it did not finish"]
        return outcome

    points = {cell.grade_id: cell.points for cell in lesson.checks}
    found: dict[Answer, CheckOutcome] = {}
    trying: Answer | None = None
    try:
        with sandbox:
            for cell in cells[: last + 1]:
                for trying in tries.get(cell.id, ()):
                    run(_own(_KEEP))
                    run(cell.model_copy(update={"source": trying.source, "visible": trying.source}))
                    found[trying] = run(checks[f"{cell.id}-check"])
                    run(_own(_RESTORE))
                trying = None
                solved = run(cell)
                exercise = cell.id.removesuffix("-check")
                if cell.kind == "check" and tries.get(exercise):
                    for answer in tries[exercise]:
                        yield answer, found.pop(answer) if solved.passed else None
    except EndedError:
        if trying is not None:
            yield trying, None


def _own(source: str) -> repair.Cell:
    return repair.Cell(id="between answers", kind="locked", source=source, visible=source)
