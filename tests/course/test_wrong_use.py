"""What goes wrong while a class is graded has a sentence, and no grade is lost."""

from __future__ import annotations

import errno
import os
import sqlite3
from functools import partial
from typing import TYPE_CHECKING

import nbformat
import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease
from fakegpu_lab.hardware.errors import FakeGpuError
from tests.course import graded_lesson as made
from tests.course.quick_course import graded

if TYPE_CHECKING:
    from tests.course.quick_course import Course


def test_a_disk_that_fills_up_while_grading_loses_no_grade(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, []

    def full_at_the_second(handle: int) -> None:
        synced.append(handle)
        if len(synced) == 2:
            os.ftruncate(handle, os.fstat(handle).st_size - 20)  # only a part of the line found room
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full_at_the_second)
    with pytest.raises(FakeGpuError, match=r"no space left.*grades\.csv\.journal: make room.*--resume"):
        course.grade()
    graded.clear()
    assert course.grade("--resume")["score"] == "6.0"
    assert graded == ["ben"], "ada was in the journal"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_disk_that_is_full_for_the_table_keeps_the_table_of_before(
    course: Course, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    before = course.grade()
    course.hand_in("Because of the inputs.")

    def full(*args: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fakegpu_lab.course.grade.outputs.tables.csv.writer", full)
    with pytest.raises(FakeGpuError, match="The disk has no space left"):
        course.grade()
    monkeypatch.undo()
    monkeypatch.chdir(course.folder)
    assert course.row() == before
    assert not list(course.folder.glob("*.part"))


def test_a_full_disk_under_the_gradebook_is_named(course: Course) -> None:
    course.grade()
    with _nbgrader_at_ease(), course.book() as book:
        pages = book.db.connection().exec_driver_sql("PRAGMA page_count").scalar()
    small = partial(sqlite3.connect, factory=_full_after(pages))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", small)
        for student in range(60):
            (course.folder / "submitted" / f"{student:03}" / "two").mkdir(parents=True)
        with pytest.raises(FakeGpuError, match=r"database or disk is full. Make room, and run the same command"):
            course.grade("--resume")
    assert course.row()["score"] == "6.0", "the table is written nevertheless"


def _full_after(pages: int) -> type[sqlite3.Connection]:
    class Full(sqlite3.Connection):
        """A database that cannot grow: SQLite's own way to have a full disk."""

        def __init__(self, *args: object, **options: object) -> None:
            super().__init__(*args, **options)  # type: ignore[arg-type]
            self.execute(f"PRAGMA max_page_count = {pages}")

    return Full


def test_a_gradebook_that_is_locked_has_a_sentence_and_the_other_files_are_written(course: Course) -> None:
    course.grade()
    course.hand_in("Because of the inputs.")
    (course.folder / "grades.csv").unlink()
    holder = sqlite3.connect(course.folder / "gradebook.db")
    holder.execute("begin exclusive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3.dbapi2, "connect", partial(sqlite3.connect, timeout=0))
        with pytest.raises(
            FakeGpuError, match=r"gradebook\.db cannot be written: database is locked\. Close what has it"
        ):
            course.grade()
    assert course.row()["score"] == "6.0"
    holder.rollback()
    holder.close()
    graded.clear()
    assert course.grade("--resume")["score"] == "6.0"
    assert graded == [], "nothing is graded twice"


def test_a_lesson_that_was_changed_after_the_release_is_graded_as_it_is_now(course: Course) -> None:
    source = made.source()
    source.cells[5].source = source.cells[5].source.replace(
        "torch.ones(5)).sum().item(), 5.0", "torch.ones(7)).sum().item(), 7.0"
    )
    nbformat.write(source, course.folder / "source" / "two" / "two.ipynb")
    assert course.grade()["score"] == "6.0"
    cells = {
        cell.metadata.nbgrader.grade_id: cell for cell in course.autograded("ada").cells if "nbgrader" in cell.metadata
    }
    assert "torch.ones(7)" in cells["move-check"].source


def test_a_lesson_with_other_exercises_than_the_gradebook_has_a_sentence(course: Course) -> None:
    course.grade()
    source = made.source()
    del source.cells[4:6]
    nbformat.write(source, course.folder / "source" / "two" / "two.ipynb")
    with pytest.raises(
        FakeGpuError, match=r"gradebook\.db has two with other graded cells: move-check\. Give another file"
    ):
        course.grade()
    assert course.row()["score"] == "3.0", "the table has what the lesson asks for now"


def test_a_student_who_is_not_in_the_course_is_named_and_left_out(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    (course.folder / "canvas.csv").write_text("Student,ID,SIS Login ID,Section\nBen,2,ben,\n", encoding="utf-8")
    course.grade("--format", "canvas", "--roster", "canvas.csv")
    assert "Not found exactly once in canvas.csv: ada." in capsys.readouterr().out
    assert "ada" not in (course.folder / "grades.canvas.csv").read_text(encoding="utf-8")
