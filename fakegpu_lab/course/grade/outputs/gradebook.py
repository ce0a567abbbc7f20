"""Writes outcomes to nbgrader's own database, for its formgrader, export and feedback; reads what a person gave."""

from __future__ import annotations

import contextlib
import os
import sysconfig
import warnings
from datetime import timezone
from typing import TYPE_CHECKING

from fakegpu_lab.course.grade.outputs import autograded
from fakegpu_lab.course.grade.outputs.lateness import NEVER
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nbgrader.api import Gradebook

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline
    from fakegpu_lab.course.grade.submissions import Submission


def write(
    path: Path,
    lesson: GradedLesson,
    outcomes: list[Outcome],
    submitted: list[Submission],
    deadline: Deadline = NEVER,
    versions: list[GradedLesson] | None = None,
) -> list[Outcome]:
    """Write students, submissions and points to a ``gradebook.db``, as ``nbgrader autograde`` does (SaveAutoGrades).

    The folder ``autograded/`` beside it gets the notebooks that the formgrader shows (`autograded`). Grades given by a
    person stay, and count in the outcomes that are returned; if the answer has changed since, the formgrader asks for
    another look, and until then the grade is not in them. Times of submissions are set if they are known.

    Parameters
    ----------
    versions
        For each submission, the version of the lesson that it was graded by; what only an earlier one has of graded
        cells is left out.

    Raises
    ------
    FakeGpuError
        nbgrader is not installed, the database has the assignment with other cells, or it is locked.
    """
    try:
        from nbgrader.api import Gradebook, InvalidEntry
    except ImportError:
        raise FakeGpuError("nbgrader is not installed here: pip install 'fakegpu-lab[course]'") from None
    from sqlalchemy.exc import OperationalError

    try:
        with _nbgrader_at_ease(), Gradebook(f"sqlite:///{path.resolve().as_posix()}") as book:
            versions = versions or [lesson] * len(outcomes)
            return _write(book, path, lesson, outcomes, submitted, deadline, versions)
    except (OperationalError, InvalidEntry) as error:
        cause = error.__context__ if isinstance(error, InvalidEntry) else error  # nbgrader wraps some of the database's
        if not isinstance(cause, OperationalError):
            raise
        first = "Make room" if "full" in str(cause.orig) else "Close what has it open, such as nbgrader's formgrader"
        raise FakeGpuError(
            f"{path} cannot be written: {cause.orig}. {first}, and run the same command with --resume: nothing is "
            "graded twice."
        ) from None


def _write(
    book: Gradebook,
    path: Path,
    lesson: GradedLesson,
    outcomes: list[Outcome],
    submitted: list[Submission],
    deadline: Deadline,
    versions: list[GradedLesson],
) -> list[Outcome]:
    from nbgrader.api import MissingEntry
    from nbgrader.utils import parse_utc

    due = {"duedate": deadline.due.astimezone(timezone.utc).replace(tzinfo=None)} if deadline.due else {}
    book.update_or_create_assignment(lesson.name, **due)
    try:
        known = {cell.name for cell in book.find_notebook(lesson.notebook, lesson.name).grade_cells}
    except MissingEntry:
        book.add_notebook(lesson.notebook, lesson.name)
        known = set()
        for cell in lesson.cells:
            _add_cell(book, lesson, cell)
    wanted = {cell.grade_id for cell in lesson.checks}
    if known and known != wanted:
        raise FakeGpuError(
            f"{path} has {lesson.name} with other graded cells: {', '.join(sorted(known ^ wanted))}. Give another "
            "file, or run nbgrader generate_assignment again."
        )
    read, folder = [], path.parent / autograded.FOLDER
    for outcome, handed_in, version in zip(outcomes, submitted, versions, strict=True):
        book.update_or_create_student(outcome.student)
        try:
            when = {"timestamp": parse_utc(outcome.timestamp)} if outcome.timestamp else {}
        except (ValueError, OverflowError):
            when = {}
        submission = book.update_or_create_submission(lesson.name, outcome.student, **when)
        for notebook in submission.notebooks if deadline.due else ():
            notebook.late_submission_penalty = deadline.lateness(outcome).penalty
        changed = autograded.is_new(folder, version, outcome, handed_in)
        read.append(_exchange_points(book, lesson, outcome, autograded.answers(version, handed_in), changed=changed))
    book.db.commit()
    for outcome, handed_in, version in zip(outcomes, submitted, versions, strict=True):
        autograded.write(folder, version, outcome, handed_in)
    return read


def _exchange_points(
    book: Gradebook, lesson: GradedLesson, outcome: Outcome, answers: dict[str, str], *, changed: bool
) -> Outcome:
    """Write a submission's points, and return the outcome with those that a person gave to it."""
    read = outcome.model_copy(deep=True)
    where = (lesson.notebook, lesson.name, outcome.student)
    mine = {check.grade_id: check for check in read.checks}
    for check in [mine[cell.grade_id] for cell in lesson.checks if cell.grade_id in mine]:
        grade = book.find_grade(check.grade_id, *where)
        grade.auto_score = check.points
        if grade.manual_score is None:
            grade.needs_manual_grade = check.points is None
        else:
            grade.needs_manual_grade = grade.needs_manual_grade or changed
            check.again = grade.needs_manual_grade
            if not check.again:
                check.points, check.by_person = grade.manual_score + (grade.extra_credit or 0.0), True
    written = ""
    for cell in lesson.cells:
        if cell.solution:
            comment = book.find_comment(cell.grade_id, *where)
            untouched = answers.get(cell.grade_id, "").strip() in ("", cell.visible.strip())
            comment.auto_comment = "No response." if untouched else None
            written = comment.manual_comment or ""
        if cell.grade:
            if cell.grade_id in mine:
                mine[cell.grade_id].comment = written
            written = ""
    return read


@contextlib.contextmanager
def _nbgrader_at_ease() -> Iterator[None]:
    """Let nbgrader find the command `alembic` even if the environment is not activated, and hide its warnings."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), before])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SQLAlchemy's, about nbgrader's code
            yield
    finally:
        os.environ["PATH"] = before


def _add_cell(book: object, lesson: GradedLesson, cell: object) -> None:
    """Add a cell as nbgrader's SaveCells does; ``nbgrader autograde`` refuses locked cells without the checksum."""
    import nbformat
    from nbgrader.api import Gradebook
    from nbgrader.utils import compute_checksum

    from fakegpu_lab.course.grade.graded_lesson import LessonCell

    assert isinstance(book, Gradebook)
    assert isinstance(cell, LessonCell)
    where = (cell.grade_id, lesson.notebook, lesson.name)
    if cell.grade:
        book.add_grade_cell(*where, max_score=cell.points, cell_type=cell.cell_type)
    if cell.solution:
        book.add_solution_cell(*where)
    source = cell.visible if cell.solution else cell.source
    marks = cell.model_dump(include={"grade_id", "grade", "solution", "locked", "points"})
    node = nbformat.from_dict({"cell_type": cell.cell_type, "source": source, "metadata": {"nbgrader": marks}})
    checksum = compute_checksum(node)
    book.add_source_cell(*where, cell_type=cell.cell_type, locked=cell.locked, source=source, checksum=checksum)
