"""Writes outcomes as a CSV, with the columns of nbgrader's export first, and sums them up by exercise."""

from __future__ import annotations

import csv
import re
import statistics
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.course import whole_file
from fakegpu_lab.course.grade.flagged import Acknowledged
from fakegpu_lab.course.grade.outcome import FOUND
from fakegpu_lab.course.grade.outputs.lateness import NEVER
from fakegpu_lab.formatting.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson, LessonCell
    from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline

NBGRADER = (
    "assignment",
    "duedate",
    "timestamp",
    "student_id",
    "last_name",
    "first_name",
    "email",
    "raw_score",
    "late_submission_penalty",
    "score",
    "max_score",
)
"""The columns that nbgrader/plugins/export.py writes."""
OURS = ("status", "reason", "needs_manual_grade", "flags", "acknowledged", "notes", "days_late")
_FORMULA = re.compile(r"(^|[;\t\r\n])(\s*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20\t\r])")
"""How a formula begins; also after what a spreadsheet set to another language takes for the end of a cell."""


def cell(text: object) -> str:
    """Return text that no spreadsheet takes for a formula, nor any part of it."""
    shown = printable(str(text))
    return shown if shown == "-" else _FORMULA.sub(r"\1\2'", shown)


def write(
    path: Path,
    lesson: GradedLesson,
    outcomes: list[Outcome],
    deadline: Deadline = NEVER,
    looked_at: Acknowledged | None = None,
    person: Callable[[str], tuple[str, str, str]] = lambda student: ("", "", ""),
) -> None:
    """Write a row for every submission. The file is replaced whole, or not at all.

    Parameters
    ----------
    looked_at
        What a person has looked at; the other flags are in the column of flags.
    person
        The last name, first name and email address of a student.
    """
    looked_at = looked_at or Acknowledged(path)
    parts = [cell.grade_id for cell in checks(lesson, outcomes)]
    with whole_file.writing(path, newline="") as file:
        table = csv.writer(file)
        table.writerow([*NBGRADER, *OURS, *parts])
        for outcome in outcomes:
            points = {check.grade_id: check.points for check in outcome.checks}
            late = deadline.lateness(outcome)
            last, first, email = person(outcome.student)
            common = {
                "assignment": lesson.name,
                "timestamp": outcome.timestamp,
                "student_id": outcome.student,
                "last_name": last,
                "first_name": first,
                "email": email,
                "raw_score": outcome.score,
                "duedate": deadline.due.isoformat(" ") if deadline.due else "",
                "late_submission_penalty": late.penalty,
                "score": deadline.score(outcome),
                "max_score": outcome.max_score,
            }
            ours = [
                outcome.status,
                outcome.reason,
                " ".join(outcome.manual),
                "; ".join(one.text for one in looked_at.open(outcome)),
                "; ".join(f"{name}: {note}" for name, note in looked_at.done(outcome).items()),
                "; ".join(outcome.notes),
                "" if late.days is None else late.days,
            ]
            earned = [points.get(name) for name in parts]
            row = [*(common.get(name, "") for name in NBGRADER), *ours, *("" if p is None else p for p in earned)]
            table.writerow([value if isinstance(value, float) else cell(value) for value in row])


class ExerciseSummary(NamedTuple):
    """How a class did in one exercise.

    Attributes
    ----------
    passed, partly, failed, unsolved, unreached
        How many submissions earned all points, some, none; how many of the last had written nothing, and how many
        ended before the exercise.
    mean
        The mean of the points.
    difficulty
        The mean share of the points that was earned: 1 if everyone solved it.
    discrimination
        The correlation of its points with those of all other exercises, from -1 to 1; None if it is not defined. Below
        0.2, those who know the rest fail it as often as others: look at its check.
    wrong
        What was most often not as expected, with an example of what was found instead; and how often it was so.
    """

    grade_id: str
    title: str
    max_points: float
    passed: int
    partly: int
    failed: int
    unsolved: int
    unreached: int
    mean: float
    difficulty: float
    discrimination: float | None
    wrong: list[tuple[str, int]]


def summary(lesson: GradedLesson, outcomes: list[Outcome], most: int = 3) -> list[ExerciseSummary]:
    """Sum up each exercise: how often it failed, and how."""
    found = []
    for graded in checks(lesson, outcomes):
        mine = [(one, outcome) for outcome in outcomes for one in outcome.checks if one.grade_id == graded.grade_id]
        scored = [(one.points, outcome.score - one.points) for one, outcome in mine if one.points is not None]
        found.append(_exercise_summary(graded, [one for one, _ in mine], _correlation(scored), most))
    return found


def _correlation(pairs: list[tuple[float, float]]) -> float | None:
    """Pearson's; None where one of the two is the same for everyone, or there are fewer than three."""
    try:
        return statistics.correlation(*zip(*pairs, strict=True)) if len(pairs) > 2 else None
    except statistics.StatisticsError:
        return None


def checks(lesson: GradedLesson, outcomes: list[Outcome]) -> list[LessonCell]:
    """The cells that give points: those of the lesson, then those that only earlier versions of it have."""
    found = {cell.grade_id: cell for cell in lesson.checks}
    for check in [check for outcome in outcomes for check in outcome.checks]:
        if check.grade_id not in found:
            like = {"grade_id": check.grade_id, "points": check.max_points, "solution": check.points is None}
            found[check.grade_id] = lesson.checks[0].model_copy(update=like)
    return list(found.values())


def _exercise_summary(
    graded: LessonCell, checks: list[CheckOutcome], discrimination: float | None, most: int
) -> ExerciseSummary:
    scored = [check for check in checks if check.points is not None]
    passed = [check for check in scored if check.passed]
    partly = [check for check in scored if check.points and not check.passed]
    failed = [check for check in scored if not check.points and not check.passed]
    answered = [check for check in checks if check.answer is not False]
    return ExerciseSummary(
        grade_id=graded.grade_id,
        title=next((check.title for check in checks if check.title), ""),
        max_points=graded.points,
        passed=len(passed),
        partly=len(partly),
        failed=len(failed),
        unsolved=sum(check.answer is False for check in failed),
        unreached=sum(not check.ran and not graded.manual for check in failed),
        mean=(mean := sum(check.points or 0.0 for check in scored) / len(scored) if scored else 0.0),
        difficulty=mean / graded.points if graded.points else 0.0,
        discrimination=discrimination,
        wrong=_most_common([check.wrong for check in answered], most),
    )


def _most_common(wrong: list[list[str]], most: int) -> list[tuple[str, int]]:
    """What was wrong most often: what was found differs, where a check draws its numbers."""
    found: dict[str, Counter[str]] = {}
    for one in wrong:
        mine: dict[str, str] = {}
        for text in one:
            mine.setdefault(text.partition(FOUND)[0], text)
        for expected, text in mine.items():
            found.setdefault(expected, Counter())[text] += 1
    counts = Counter({expected: texts.total() for expected, texts in found.items()})
    return [(_example(found[expected]), count) for expected, count in counts.most_common(most)]


def _example(texts: Counter[str]) -> str:
    (first, _), *others = texts.most_common(2)
    return first.replace(FOUND, ", found, for example: ", 1) if others else first
