"""What came of a submission: picklable, and JSON for the journal from which a grading run goes on."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Status = Literal[
    "graded", "timeout", "memory", "processes", "output", "disk", "crashed", "unreadable", "empty", "error"
]
"""``graded``: to its end. ``unreadable`` and ``empty``: nothing could be run. ``error``: the grader's own fault.
The rest: what ended it; the points that it had earned before stay."""


class CheckOutcome(BaseModel):
    """What came of one graded cell.

    Attributes
    ----------
    points
        None where a person gives them.
    answer
        Whether anything was written where the answer belongs; None where that cannot be told.
    wrong
        What was expected and what was found, for each part that was not met; or the error.
    record
        The check's own `fakegpu_lab.course.checks.record.CheckRecord`, as JSON, where it has one.
    """

    grade_id: str
    title: str = ""
    points: float | None = None
    max_points: float
    ran: bool = False
    answer: bool | None = None
    wrong: list[str] = Field(default_factory=list)
    record: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether it earned all points."""
        return self.points is not None and self.points >= self.max_points


class CellOutcome(BaseModel):
    """A cell and what it showed, for the feedback page."""

    id: str
    kind: str
    source: str
    outputs: list[dict[str, Any]] = Field(default_factory=list)
    ran: bool = True


class Outcome(BaseModel):
    """What came of one submission.

    Attributes
    ----------
    reason
        One sentence where the status is not ``"graded"``.
    flags
        What an instructor should look at: no points are taken for it.
    notes
        What was mended, or noticed, and is nobody's fault.
    seconds
        Of the clock's time.
    processor_seconds
        Of the processor's time, as far as it was seen.
    peak_bytes
        The most memory that its processes were seen to hold.
    confined
        What kept it from other files, the network, too much memory.
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
        """All points that a program can give."""
        return round(sum(check.points or 0.0 for check in self.checks), 6)

    @property
    def max_score(self) -> float:
        """All points there are."""
        return sum(check.max_points for check in self.checks)

    @property
    def manual(self) -> list[str]:
        """Answers that a person must read."""
        return [check.grade_id for check in self.checks if check.points is None]
