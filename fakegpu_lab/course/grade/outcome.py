"""The outcome of a submission, and the journal of a grading run.

An outcome is picklable for Dask, and JSON for the journal: one line for each graded submission, so that an interrupted
run can resume.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.sandbox.limits import Limits
    from fakegpu_lab.course.grade.submissions import Submission


Status = Literal[
    "graded", "timeout", "memory", "processes", "output", "disk", "crashed", "unreadable", "empty", "error"
]
"""``graded``: all of it ran. ``unreadable`` and ``empty``: nothing could run. ``error``: the grader itself failed.
The rest say what ended it; the points earned before that stay."""


FOUND = "; found: "
"""Between what was expected and what was found, in what was wrong."""


class CheckOutcome(BaseModel):
    """The outcome of one graded cell.

    Attributes
    ----------
    points
        None if a person gives them.
    answer
        Whether the answer's cell has anything written in it; None if that is not known.
    wrong
        For each part that was not met, what was expected and found; or the error.
    record
        The check's own `fakegpu_lab.course.checks.record.CheckRecord`, as JSON, if it has one.
    by_person, comment
        Whether a person gave the points in nbgrader's formgrader, and what they wrote about the answer.
    again
        Whether the points that a person gave were for an earlier answer: they must look at this one.
    """

    grade_id: str
    title: str = ""
    points: float | None = None
    max_points: float
    ran: bool = False
    answer: bool | None = None
    wrong: list[str] = Field(default_factory=list)
    record: dict[str, Any] | None = None
    by_person: bool = False
    again: bool = False
    comment: str = ""

    @property
    def passed(self) -> bool:
        """Whether it earned all points."""
        return self.points is not None and self.points >= self.max_points


class CellOutcome(BaseModel):
    """A cell and its outputs, for the feedback page."""

    id: str
    kind: str
    source: str
    outputs: list[dict[str, Any]] = Field(default_factory=list)
    ran: bool = True


class Outcome(BaseModel):
    """The outcome of one submission.

    Attributes
    ----------
    digest, edition
        Hashes of the submission, and of the lesson that it was graded by.
    reason
        A sentence, if the status is not ``"graded"``, or if an answer is not valid Python.
    flags
        What an instructor should look at; it costs no points.
    notes
        What was repaired or noticed, and is nobody's fault.
    seconds
        Wall-clock time.
    processor_seconds, asleep_seconds
        Processor time, and time in which it wanted no processor, as far as they were observed.
    peak_bytes
        The most memory that its processes were observed to hold.
    confined
        The protections in force: against reading other files, using the network, taking too much memory.
    """

    student: str
    lesson: str
    digest: str
    edition: str = ""
    timestamp: str = ""
    status: Status = "graded"
    reason: str = ""
    checks: list[CheckOutcome] = Field(default_factory=list)
    flags: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    cells: list[CellOutcome] = Field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0
    asleep_seconds: float = 0.0
    peak_bytes: int = 0
    confined: list[str] = Field(default_factory=list)

    @property
    def score(self) -> float:
        """The points of all checks."""
        return round(sum(check.points or 0.0 for check in self.checks), 6)

    @property
    def max_score(self) -> float:
        """The points possible."""
        return sum(check.max_points for check in self.checks)

    @property
    def heading(self) -> str:
        """What `reason` is the reason for."""
        if self.status == "graded":
            return "Not every cell ran"
        return "Nothing was run" if self.status in ("unreadable", "empty") else "Not everything finished"

    @property
    def manual(self) -> list[str]:
        """Answers that a person must read."""
        return [check.grade_id for check in self.checks if check.points is None or check.again]

    def with_check(self, grade_id: str, regraded: Outcome) -> Outcome:
        """Return this outcome, with the points and outputs of one check from `regraded`, and what else was flagged."""
        check = next(check for check in regraded.checks if check.grade_id == grade_id)
        flags = [flag for flag in self.flags if not flag.startswith(f"{grade_id}:")]
        flags = list({*flags, *regraded.flags})
        cells = {cell.id: cell for cell in regraded.cells if cell.id == grade_id}
        changes: dict[str, Any] = {
            "edition": regraded.edition,
            "checks": [check if old.grade_id == grade_id else old for old in self.checks],
            "flags": sorted(flags),
            "cells": [cells.get(cell.id, cell) for cell in self.cells],
        }
        if regraded.status != "graded":
            changes |= {"status": regraded.status, "reason": regraded.reason}
        return self.model_copy(update=changes)


class Journal:
    """A file of outcomes, each valid for one edition of a lesson and the same limits.

    Parameters
    ----------
    path
        The file. Without `resume`, an existing one is renamed.
    resume
        Whether to use the outcomes in it.
    earlier
        Whether to keep the outcomes of the run before, of whatever edition and limits, for `before`.
    """

    def __init__(self, path: Path, limits: Limits, *, resume: bool, earlier: bool = False) -> None:
        self.path = path
        self._key = limits.model_dump_json()
        self._known: dict[tuple[str, str], Outcome] = {}
        self._before: dict[tuple[str, str], Outcome] = {}
        old = path.with_suffix(path.suffix + ".old")
        if path.exists() and not resume:
            os.replace(path, old)  # noqa: PTH105 - replaces an older one
        if resume:
            self._known = _outcomes(path, self._key)
        if earlier:
            self._before = _outcomes(old)

    def known(self, submission: Submission, lesson: GradedLesson) -> Outcome | None:
        """The outcome of exactly this submission and this edition, unless the grader itself failed."""
        found = self._known.get((submission.student, submission.digest))
        return None if found is None or found.status == "error" or found.edition != lesson.digest else found

    def before(self, submission: Submission) -> Outcome | None:
        """The outcome of exactly this submission in the run before."""
        return self._before.get((submission.student, submission.digest))

    def add(self, outcome: Outcome) -> None:
        """Write an outcome; it is on the disk when this returns."""
        line = json.dumps({"key": self._key, "outcome": outcome.model_dump(mode="json")})
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + line + "\n" if self._ends_within_line() else line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _ends_within_line(self) -> bool:
        """Whether the last line is incomplete."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"


def journal_of(grades: Path) -> Path:
    """The journal beside a table of grades."""
    return grades.with_name(grades.name + ".journal")


def latest(path: Path) -> list[Outcome]:
    """The last outcome of each student in a journal, by name."""
    found = {outcome.student: outcome for outcome in _outcomes(path).values()}
    return [found[student] for student in sorted(found)]


def _outcomes(path: Path, key: str | None = None) -> dict[tuple[str, str], Outcome]:
    """The outcomes in a journal, the last of each submission; with `key`, only those of the same limits."""
    found: dict[tuple[str, str], Outcome] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for line in lines:
        try:
            entry = json.loads(line)
            outcome = Outcome.model_validate(entry["outcome"])
            if key in (None, entry["key"]):
                found[outcome.student, outcome.digest] = outcome
        except (ValueError, KeyError, TypeError, ValidationError):  # noqa: PERF203 - a line may be cut off
            continue
    return found
