"""Writes outcomes to nbgrader's own database, for its formgrader, export and feedback."""

from __future__ import annotations

import contextlib
import os
import sysconfig
import warnings
from datetime import timezone
from typing import TYPE_CHECKING

from fakegpu_lab.course.grade.outputs.lateness import NEVER
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nbgrader.api import Gradebook

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson
    from fakegpu_lab.course.grade.outcome import Outcome
    from fakegpu_lab.course.grade.outputs.lateness import Deadline


def write(path: Path, lesson: GradedLesson, outcomes: list[Outcome], deadline: Deadline = NEVER) -> None:
    """Write students, submissions and points to a ``gradebook.db``, as ``nbgrader autograde`` does (SaveAutoGrades).

    Grades given by a person stay. Times of submissions are set if they are known.

    Raises
    ------
    FakeGpuError
        nbgrader is not installed, the database has the assignment with other cells, or it is locked.
    """
    try:
        from nbgrader.api import Gradebook
    except ImportError:
        raise FakeGpuError("nbgrader is not installed here: pip install 'fakegpu-lab[course]'") from None
    from sqlalchemy.exc import OperationalError

    try:
        with _nbgrader_at_ease(), Gradebook(f"sqlite:///{path.resolve().as_posix()}") as book:
            _write(book, path, lesson, outcomes, deadline)
    except OperationalError as error:
        raise FakeGpuError(
            f"{path} cannot be written: {error.orig}. Close what has it open, such as nbgrader's formgrader, and give "
            "the same command with --resume: nothing is graded twice."
        ) from None


def _write(book: Gradebook, path: Path, lesson: GradedLesson, outcomes: list[Outcome], deadline: Deadline) -> None:
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
    for outcome in outcomes:
        book.update_or_create_student(outcome.student)
        try:
            when = {"timestamp": parse_utc(outcome.timestamp)} if outcome.timestamp else {}
        except (ValueError, OverflowError):
            when = {}
        submission = book.update_or_create_submission(lesson.name, outcome.student, **when)
        for notebook in submission.notebooks if deadline.due else ():
            notebook.late_submission_penalty = deadline.lateness(outcome.timestamp, outcome.score).penalty
        for check in outcome.checks:
            grade = book.find_grade(check.grade_id, lesson.notebook, lesson.name, outcome.student)
            grade.auto_score = check.points
            grade.needs_manual_grade = check.points is None or grade.manual_score is not None
    book.db.commit()


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
