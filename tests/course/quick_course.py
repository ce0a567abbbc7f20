"""A course whose submissions are graded in no time: for tests of what happens before and after."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import nbformat
from nbgrader.api import Gradebook

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.grade.one_submission import nothing_yet
from fakegpu_lab.course.grade.outcome import CellOutcome
from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease
from fakegpu_lab.course.lessons.release import released
from tests.course import graded_lesson as made

if TYPE_CHECKING:
    from pathlib import Path

NBGRADER = [["timestamp.txt", "2026-11-02 10:00:00 UTC"], ["submission_secret.txt", "s3cret"], ["plan.txt", "a plan"]]
HOSTILE = "<script>alert(1)</script>"
WHY = f"It is where the weights are. {HOSTILE}"


hidden: set[str] = set()
"""What the grader hid from the last submission."""
graded: list[str] = []
"""Whose submissions were graded."""


def outcome_of(submission: Any, lesson: Any, limits: object, hide: list[str], *rest: object) -> Any:
    """Everything right that a program can judge, in no time."""
    hidden.clear()
    hidden.update(hide)
    graded.append(submission.student)
    outcome = nothing_yet(submission, lesson)
    if submission.problem:
        outcome.status, outcome.reason = "unreadable", submission.problem
        return outcome
    for check, cell in zip(outcome.checks, lesson.checks, strict=True):
        check.points = None if cell.manual else cell.points
    data = {"text/html": HOSTILE, "text/plain": "a table"}
    shown: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": "hello\n"},
        {"output_type": "display_data", "data": data, "metadata": {}},
    ]
    outcome.cells = [CellOutcome(id="move", kind="student", source="", outputs=shown)]
    return outcome


class Course:
    """A course with one student who wrote an answer, and one who handed in nothing readable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = made.source()
        (folder / "source" / "two").mkdir(parents=True)
        nbformat.write(source, folder / "source" / "two" / "two.ipynb")
        self.starter = released(source)
        self.hand_in(WHY)
        (folder / "submitted" / "ben" / "two").mkdir(parents=True)
        (folder / "submitted" / "ben" / "two" / "photo.png").write_bytes(b"\x89PNG")

    def hand_in(self, why: str | None) -> None:
        place = self.folder / "submitted" / "ada" / "two"
        place.mkdir(parents=True, exist_ok=True)
        submission = made.submission(self.starter, why=why)
        submission.cells[-1]["attachments"] = {"drawing.png": {"image/png": "aGVsbG8="}}
        (place / "two.ipynb").write_bytes(made.raw(submission))
        for name, text in NBGRADER:
            (place / name).write_text(text)

    def grade(self, *options: str) -> dict[str, str]:
        """Run ``fakegpu-lab grade``; return ada's row."""
        asked = ["grade", "--lesson", "two", "submitted", "--gradebook", "gradebook.db", "--feedback", "feedback"]
        assert not cli.main([*asked, *options], standalone_mode=False)
        return self.row()

    def row(self) -> dict[str, str]:
        """Ada's row of the table."""
        with (self.folder / "grades.csv").open(newline="", encoding="utf-8") as file:
            return {row["student_id"]: row for row in csv.DictReader(file)}["ada"]

    def autograded(self, student: str) -> Any:
        return nbformat.read(self.folder / "autograded" / student / "two" / "two.ipynb", 4)

    def page(self) -> str:
        return (self.folder / "feedback" / "ada" / "two" / "two.html").read_text(encoding="utf-8")

    def book(self) -> Any:
        return Gradebook(f"sqlite:///{(self.folder / 'gradebook.db').as_posix()}")

    def read(self, points: float, comment: str) -> None:
        """As the formgrader does (nbgrader/server_extensions/formgrader/apihandlers.py: GradeHandler.put)."""
        with _nbgrader_at_ease(), self.book() as book:
            grade = book.find_grade("why", "two", "two", "ada")
            grade.manual_score, grade.needs_manual_grade = points, False
            book.find_comment("why", "two", "two", "ada").manual_comment = comment
            book.db.commit()
