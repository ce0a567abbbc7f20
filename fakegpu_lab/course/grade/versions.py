"""Which version of a lesson a submission came from: the one whose own cells and files it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.course.grade import graded_lesson, repair
from fakegpu_lab.course.lessons import release

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.submissions import Submission


def earlier(folder: Path) -> list[GradedLesson]:
    """The versions of a lesson that were released, other than the lesson as it is now; the latest first."""
    kept = release.kept(folder)
    now = release.digest(folder) if kept else ""
    return [
        graded_lesson.load(one.folder).model_copy(update={"version": f"{one.date} ({one.digest})"})
        for one in kept
        if one.digest != now
    ]


def of(submission: Submission, current: GradedLesson, versions: list[GradedLesson]) -> GradedLesson:
    """The version that a submission came from.

    Code of a check says nothing: a check that was corrected is no other version. Where several versions fit equally
    well, it is the lesson as it is now, then the latest. Cells that are missing say nothing, either: of an earlier
    version is what has something of it that the lesson has no longer.
    """
    if not versions or submission.problem:
        return current
    try:
        written = {cell["source"].strip() for cell in repair.read(submission.notebook)}
    except repair.UnreadableError:
        return current
    has = written | set(submission.files.items())
    before = [one for one in versions if has & _parts(one, submission) - _parts(current, submission)]
    return max([current, *before], key=lambda one: _likeness(_parts(one, submission), has))


def _parts(lesson: GradedLesson, submission: Submission) -> set[str | tuple[str, bytes]]:
    """A version's own cells, and its files of which a submission has one of that name."""
    cells = {cell.visible.strip() for cell in lesson.cells if cell.locked and not cell.grade} | set(lesson.shown)
    return cells | {(name, raw) for name, raw in lesson.files.items() if name in submission.files}


def _likeness(parts: set[str | tuple[str, bytes]], has: set[str | tuple[str, bytes]]) -> int:
    """How many more of a version's parts a submission has than lacks."""
    return len(parts & has) - len(parts - has)
