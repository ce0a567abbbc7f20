"""Written answers: a person reads them in nbgrader's formgrader, and what they gave reaches tables and feedback."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import nbformat
import pytest

pytest.importorskip("nbgrader")

from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.grade import whole_class
from fakegpu_lab.course.grade.one_submission import nothing_yet
from fakegpu_lab.course.grade.outcome import CellOutcome
from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease
from fakegpu_lab.course.lessons.release import released
from tests.course import graded_lesson as made

if TYPE_CHECKING:
    from pathlib import Path

NBGRADER = [["timestamp.txt", "2026-11-02 10:00:00 UTC"], ["submission_secret.txt", "s3cret"], ["plan.txt", "a plan"]]
HOSTILE = "<script>alert(1)</script>"
WHY = f"It is where the weights are. {HOSTILE}"


def outcome_of(submission: Any, lesson: Any, *rest: object) -> Any:
    """Everything right that a program can judge, in no time."""
    outcome = nothing_yet(submission, lesson)
    if submission.problem:
        outcome.status, outcome.reason = "unreadable", submission.problem
        return outcome
    for check, cell in zip(outcome.checks, lesson.checks, strict=True):
        check.points = None if cell.manual else cell.points
    data = {"text/html": HOSTILE, "text/plain": "a table"}
    shown: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": "hello\n"},
        {"output_type": "display_data", "data": data, "metadata": {}},
    ]
    outcome.cells = [CellOutcome(id="move", kind="student", source="", outputs=shown)]
    return outcome


class Course:
    """A course with one student who wrote an answer, and one who handed in nothing readable."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        source = made.source()
        (folder / "source" / "two").mkdir(parents=True)
        nbformat.write(source, folder / "source" / "two" / "two.ipynb")
        self.starter = released(source)
        self.hand_in(WHY)
        (folder / "submitted" / "ben" / "two").mkdir(parents=True)
        (folder / "submitted" / "ben" / "two" / "photo.png").write_bytes(b"\x89PNG")

    def hand_in(self, why: str | None) -> None:
        place = self.folder / "submitted" / "ada" / "two"
        place.mkdir(parents=True, exist_ok=True)
        submission = made.submission(self.starter, why=why)
        submission.cells[-1]["attachments"] = {"drawing.png": {"image/png": "aGVsbG8="}}
        (place / "two.ipynb").write_bytes(made.raw(submission))
        for name, text in NBGRADER:
            (place / name).write_text(text)

    def grade(self, *options: str) -> dict[str, str]:
        """Run ``fakegpu-lab grade``; return ada's row."""
        asked = ["grade", "--lesson", "two", "submitted", "--gradebook", "gradebook.db", "--feedback", "feedback"]
        assert not cli.main([*asked, *options], standalone_mode=False)
        with (self.folder / "grades.csv").open(newline="", encoding="utf-8") as file:
            return {row["student_id"]: row for row in csv.DictReader(file)}["ada"]

    def autograded(self, student: str) -> Any:
        return nbformat.read(self.folder / "autograded" / student / "two" / "two.ipynb", 4)

    def page(self) -> str:
        return (self.folder / "feedback" / "ada" / "two" / "two.html").read_text(encoding="utf-8")

    def book(self) -> Any:
        return Gradebook(f"sqlite:///{(self.folder / 'gradebook.db').as_posix()}")

    def read(self, points: float, comment: str) -> None:
        """As the formgrader does (nbgrader/server_extensions/formgrader/apihandlers.py: GradeHandler.put)."""
        with _nbgrader_at_ease(), self.book() as book:
            grade = book.find_grade("why", "two", "two", "ada")
            grade.manual_score, grade.needs_manual_grade = points, False
            book.find_comment("why", "two", "two", "ada").manual_comment = comment
            book.db.commit()


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(whole_class, "grade", outcome_of)
    monkeypatch.setattr("nbgrader.api.get_alembic_version", lambda: "any")  # a process, for each new gradebook
    return Course(tmp_path)


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
    assert [one.get("text") or one["data"] for one in cells["move"].outputs] == ["hello\n", {"text/plain": "a table"}]
    place = course.folder / "autograded" / "ada" / "two"
    for name, text in NBGRADER:
        assert (place / name).read_text() == text
        assert (place / name).stat().st_mode & 0o777 == 0o444
    assert "it contains no notebook" in course.autograded("ben").cells[0].source


def test_html_of_a_submission_is_text_in_the_formgrader(course: Course) -> None:
    """The formgrader's pages act with the instructor's rights; it draws them with nbconvert and this setting."""
    from nbconvert import HTMLExporter

    course.grade()
    config = Config()
    text = (made.ROOT / "lessons" / "nbgrader_config.py").read_text(encoding="utf-8")
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


def test_an_answer_that_is_missing_says_so_to_the_person(course: Course) -> None:
    course.hand_in(None)  # as the lesson has it
    course.grade()
    with _nbgrader_at_ease(), course.book() as book:
        assert book.find_comment("why", "two", "two", "ada").comment == "No response."
        assert book.find_comment("move", "two", "two", "ada").comment is None
