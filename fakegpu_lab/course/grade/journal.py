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
    earlier
        Whether to keep the outcomes of the run before, of whatever edition and limits, for `before`.
    """

    def __init__(
        self, path: Path, lesson: GradedLesson, limits: Limits, *, resume: bool, earlier: bool = False
    ) -> None:
        self.path = path
        self._key = f"{lesson.digest} {limits.model_dump_json()}"
        self._known: dict[tuple[str, str], Outcome] = {}
        self._before: dict[tuple[str, str], Outcome] = {}
        old = path.with_suffix(path.suffix + ".old")
        if path.exists() and not resume:
            os.replace(path, old)  # noqa: PTH105 - replaces an older one
        if resume:
            self._known = _outcomes(path, self._key)
        if earlier:
            self._before = _outcomes(old)

    def known(self, submission: Submission) -> Outcome | None:
        """The outcome of exactly this submission, unless the grader itself failed."""
        found = self._known.get((submission.student, submission.digest))
        return None if found is None or found.status == "error" else found

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


def _outcomes(path: Path, key: str | None = None) -> dict[tuple[str, str], Outcome]:
    """The outcomes in a journal, the last of each submission; with `key`, only those of one edition and its limits."""
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
