"""The journal of a grading run: one line for each graded submission, so that an interrupted run can resume."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fakegpu_lab.course.grade.outcome import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.sandbox.limits import Limits
    from fakegpu_lab.course.grade.submissions import Submission


class Journal:
    """A file of outcomes, valid for one edition of a lesson and the same limits.

    Parameters
    ----------
    path
        The file. Without `resume`, an existing one is renamed.
    resume
        Whether to use the outcomes in it.
    """

    def __init__(self, path: Path, lesson: GradedLesson, limits: Limits, *, resume: bool) -> None:
        self.path = path
        self._key = f"{lesson.digest} {limits.model_dump_json()}"
        self._known: dict[tuple[str, str], Outcome] = {}
        if path.exists():
            if resume:
                self._read()
            else:
                os.replace(path, path.with_suffix(path.suffix + ".old"))  # noqa: PTH105 - replaces an older one

    def _read(self) -> None:
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            outcome = self._outcome(line)
            if outcome is not None:
                self._known[outcome.student, outcome.digest] = outcome

    def _outcome(self, line: str) -> Outcome | None:
        """A line's outcome; None if it belongs to another lesson, or was cut off in the middle."""
        try:
            entry = json.loads(line)
            return Outcome.model_validate(entry["outcome"]) if entry["key"] == self._key else None
        except (ValueError, KeyError, TypeError, ValidationError):
            return None

    def known(self, submission: Submission) -> Outcome | None:
        """The outcome of exactly this submission, unless the grader itself failed."""
        found = self._known.get((submission.student, submission.digest))
        return None if found is None or found.status == "error" else found

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
