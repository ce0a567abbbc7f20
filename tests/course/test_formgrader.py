"""Written answers: a person reads them in nbgrader's formgrader, and what they gave reaches tables and feedback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import nbformat
import pytest

pytest.importorskip("nbgrader")

from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease
from tests.course import graded_lesson as made
from tests.course.quick_course import HOSTILE, NBGRADER, WHY, hidden

if TYPE_CHECKING:
    from tests.course.quick_course import Course


def test_the_formgrader_finds_every_submission(course: Course) -> None:
    course.grade()
    api = NbGraderAPI(config=Config(CourseDirectory={"root": str(course.folder), "course_id": "gpus"}))
    with _nbgrader_at_ease():
        assert api.get_autograded_students("two") == {"ada", "ben"}
        assert len(api.get_notebook_submission_indices("two", "two")) == 2, "each opens in a page"
        assert {one["student"]: one["autograded"] for one in api.get_submissions("two")} == {"ada": True, "ben": True}


def test_a_person_sees_what_was_handed_in_and_what_it_did(course: Course) -> None:
    course.grade()
    notebook = course.autograded("ada")
    nbformat.validate(notebook)
    cells = {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}
    assert list(cells) == ["setup", "place", "place-check", "move", "move-check", "why"]
    assert cells["why"].source == WHY
    assert cells["why"].attachments == {"drawing.png": {"image/png": "aGVsbG8="}}
    assert "torch.ones(5)" in cells["move-check"].source, "hidden parts, too: it is the instructor's folder"
    assert all("text/html" not in one.get("data", {}) for cell in notebook.cells for one in cell.get("outputs", []))
    assert [one.get("text") or one["data"] for one in cells["move"].outputs] == ["hello\n", {"text/plain": "a table"}]
    place = course.folder / "autograded" / "ada" / "two"
    for name, text in NBGRADER:
        assert (place / name).read_text() == text
        assert (place / name).stat().st_mode & 0o777 == 0o444
    assert "it contains no notebook" in course.autograded("ben").cells[0].source


@pytest.mark.parametrize("folder", ["lessons", "docs/hub/jupyter"])
def test_html_of_a_submission_is_text_in_the_formgrader(course: Course, folder: str) -> None:
    """The formgrader's pages act with the instructor's rights; it draws them with nbconvert and this setting."""
    from nbconvert import HTMLExporter

    course.grade()
    config = Config()
    text = (made.ROOT / folder / "nbgrader_config.py").read_text(encoding="utf-8")
    exec(compile(text, "nbgrader_config.py", "exec"), {"get_config": lambda: config})
    page, _ = HTMLExporter(config=config, template_name="basic").from_notebook_node(course.autograded("ada"))
    assert "It is where the weights are." in page
    assert HOSTILE not in page


def test_points_and_comments_of_a_person_reach_the_tables_and_the_feedback(course: Course) -> None:
    before = course.grade()
    assert (before["why"], before["score"], before["needs_manual_grade"]) == ("", "6.0", "why")
    assert "1 answer will be read by a person" in course.page()
    course.read(0.5, "And the inputs?")
    after = course.grade("--resume")
    assert (after["why"], after["score"], after["needs_manual_grade"]) == ("0.5", "6.5", "")
    assert "6.5</span> of 7 points" in course.page()
    assert "And the inputs?" in course.page()
    with _nbgrader_at_ease(), course.book() as book:
        assert not book.find_submission("two", "ada").needs_manual_grade, "nobody has to look again"


def test_what_was_autograded_is_hidden_from_submissions(course: Course) -> None:
    course.grade()
    assert "autograded" in hidden


def test_a_platform_gets_grades_that_a_person_completed(course: Course) -> None:
    roster = course.folder / "canvas.csv"
    roster.write_text("Student,ID,SIS Login ID,Section\nAda,1,ada,\n", encoding="utf-8")
    asked = ("--format", "canvas", "--roster", "canvas.csv")
    course.grade(*asked)
    written = course.folder / "grades.canvas.csv"
    assert "Ada" not in written.read_text()
    course.read(1.0, "")
    course.grade("--resume", *asked)
    assert "Ada,1,ada,,7" in written.read_text()


def test_an_answer_that_was_changed_is_read_again(course: Course) -> None:
    course.grade()
    course.read(0.5, "")
    course.hand_in("Because of the inputs.")
    row = course.grade()
    assert (row["why"], row["score"], row["needs_manual_grade"]) == ("", "6.0", "why")
    with _nbgrader_at_ease(), course.book() as book:
        assert book.find_submission("two", "ada").needs_manual_grade
        assert book.find_grade("why", "two", "two", "ada").manual_score == 0.5, "nbgrader keeps it until then"


def test_points_by_hand_outlive_a_check_that_is_corrected(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    """They were lost without a word, and with them the points of everyone else that a person had graded."""
    course.grade()
    with _nbgrader_at_ease(), course.book() as book:
        book.find_grade("place-check", "two", "two", "ada").manual_score = 0.5
        book.db.commit()
    lesson = course.folder / "source" / "two" / "two.ipynb"
    source = nbformat.read(lesson, 4)
    source.cells[5].source += "\nexpect.true(True)"
    nbformat.write(source, lesson)
    row = course.grade("--regrade", "move")
    assert (row["place-check"], row["needs_manual_grade"]) == ("0.5", "why")
    course.hand_in("Because of the inputs.")
    capsys.readouterr()
    row = course.grade()
    assert (row["place-check"], row["needs_manual_grade"]) == ("3.0", "place-check why"), "an answer is another one"
    assert "Waiting for a person: 1 submission (needs_manual_grade in grades.csv)." in capsys.readouterr().out


def test_an_answer_that_is_missing_says_so_to_the_person(course: Course) -> None:
    course.hand_in(None)  # as the lesson has it
    course.grade()
    with _nbgrader_at_ease(), course.book() as book:
        assert book.find_comment("why", "two", "two", "ada").comment == "No response."
        assert book.find_comment("move", "two", "two", "ada").comment is None
