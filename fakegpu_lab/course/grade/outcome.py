"""The outcome of a submission: picklable for Dask, JSON for the journal."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Status = Literal[
    "graded", "timeout", "memory", "processes", "output", "disk", "crashed", "unreadable", "empty", "error"
]
"""``graded``: all of it ran. ``unreadable`` and ``empty``: nothing could run. ``error``: the grader itself failed.
The rest say what ended it; the points earned before that stay."""


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
    reason
        A sentence, if the status is not ``"graded"``, or if an answer is not valid Python.
    flags
        What an instructor should look at; it costs no points.
    notes
        What was repaired or noticed, and is nobody's fault.
    seconds
        Wall-clock time.
    processor_seconds
        Processor time, as far as it was observed.
    peak_bytes
        The most memory that its processes were observed to hold.
    confined
        The protections in force: against reading other files, using the network, taking too much memory.
    """

    student: str
    lesson: str
    digest: str
    timestamp: str = ""
    status: Status = "graded"
    reason: str = ""
    checks: list[CheckOutcome] = Field(default_factory=list)
    flags: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)
    cells: list[CellOutcome] = Field(default_factory=list)
    seconds: float = 0.0
    processor_seconds: float = 0.0
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
    def manual(self) -> list[str]:
        """Answers that a person must read."""
        return [check.grade_id for check in self.checks if check.points is None]

    def with_check(self, grade_id: str, regraded: Outcome) -> Outcome:
        """Return this outcome, with the points and outputs of one check from `regraded`, and what else was flagged."""
        check = next(check for check in regraded.checks if check.grade_id == grade_id)
        flags = [flag for flag in self.flags if not flag.startswith(f"{grade_id}:")]
        flags = list({*flags, *regraded.flags})
        cells = {cell.id: cell for cell in regraded.cells if cell.id == grade_id}
        changes: dict[str, Any] = {
            "checks": [check if old.grade_id == grade_id else old for old in self.checks],
            "flags": sorted(flags),
            "cells": [cells.get(cell.id, cell) for cell in self.cells],
        }
        if regraded.status != "graded":
            changes |= {"status": regraded.status, "reason": regraded.reason}
        return self.model_copy(update=changes)
