"""A small class, graded by ``fakegpu-lab grade``: a right row for everyone, whatever they did."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

pytest.importorskip("nbgrader")

from fakegpu_lab.cli import grade as grading
from fakegpu_lab.cli.commands import cli
from fakegpu_lab.cli.plain_console import PlainConsole
from fakegpu_lab.course.grade import graded_lesson as graded_lessons
from fakegpu_lab.course.grade import one_submission, repair
from fakegpu_lab.course.grade.one_submission import _no_python, score
from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.submissions import collect
from fakegpu_lab.course.lessons.release import released
from fakegpu_lab.hardware.errors import FakeGpuError
from tests.course import graded_lesson as made


def tampered(starter: Any) -> Any:
    """Right answers, and the locked cells deleted, doubled and edited."""
    notebook = made.submission(starter)
    setup, place_check, move_check = notebook.cells[1], notebook.cells[3], notebook.cells[5]
    setup.source = "import torch  # edited"
    place_check.source = "2.9"
    notebook.cells.remove(move_check)
    notebook.cells.insert(4, nbformat.from_dict(dict(place_check)))
    return notebook


STUCK = """%%exercise move
def move(x):
    while True:
        try:
            while True: pass
        except BaseException: pass"""
HUNGRY = """%%exercise move
def move(x):
    held = [bytearray(b'x' * 2**20) for _ in range(4000)]"""


ONLY_WHAT_IS_SHOWN = """%%exercise move
def move(x):
    return torch.ones(4).cuda()"""


def write_class(folder: Path) -> None:
    """A course with submissions in nbgrader's layout."""
    source = made.source()
    (folder / "source" / "two").mkdir(parents=True)
    nbformat.write(source, folder / "source" / "two" / "two.ipynb")
    starter = released(source)
    files = {
        "ada": made.raw(made.submission(starter, why="It is where the weights are.")),
        "ben": made.raw(
            made.submission(
                starter, move=ONLY_WHAT_IS_SHOWN, place='def place(rows):\n    return torch.ones(3, 2, device="cuda")'
            )
        ),
        "cy": made.raw(starter),
        "dee": made.raw(tampered(starter)),
        "endless": made.raw(made.submission(starter, move=STUCK)),
        "gone": made.raw(made.submission(starter, move="%%exercise move\nimport os; os._exit(0)")),
        "hungry": made.raw(made.submission(starter, move=HUNGRY)),
        "nothing": b"",
        "picture": b"\x89PNG not a notebook",
        "zed": json.dumps({"cells": []}).encode(),
    }
    for student, raw in files.items():
        (folder / "submitted" / student / "two").mkdir(parents=True)
        (folder / "submitted" / student / "two" / "two.ipynb").write_bytes(raw)
    (folder / "submitted" / "ada" / "two" / "timestamp.txt").write_text("2026-11-02 10:00:00 UTC")
    (folder / "submitted" / "absent" / "two").mkdir(parents=True)


MIB = 1536 if torch.version.cuda else 700  # PyTorch's CUDA build is larger
OPTIONS = ["--cell-seconds", "2", "--memory", f"{MIB}MiB", "--feedback", "feedback", "--gradebook", "gradebook.db"]


def grade(folder: Path, *options: str) -> None:
    """Run ``fakegpu-lab grade`` in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        status = cli.main(["grade", "--lesson", "two", *options], standalone_mode=False)
    assert not status


def rows(folder: Path, name: str = "grades.csv") -> dict[str, dict[str, str]]:
    with (folder / name).open(newline="", encoding="utf-8") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A course whose class was graded by two workers."""
    folder = tmp_path_factory.mktemp("class")
    write_class(folder)
    grade(folder, "submitted", "--jobs", "2", *OPTIONS)
    return folder


def everybody_has_a_row_and_the_right_points(graded: Path) -> None:
    points = {name: (row["place-check"], row["move-check"], row["score"]) for name, row in rows(graded).items()}
    assert points == {
        "absent": ("0.0", "0.0", "0.0"),
        "ada": ("3.0", "3.0", "6.0"),
        "ben": ("2.0", "2.0", "4.0"),
        "cy": ("0.0", "0.0", "0.0"),
        "dee": ("3.0", "3.0", "6.0"),
        "endless": ("3.0", "0.0", "3.0"),
        "gone": ("3.0", "0.0", "3.0"),
        "hungry": ("3.0", "0.0", "3.0"),
        "nothing": ("0.0", "0.0", "0.0"),
        "picture": ("0.0", "0.0", "0.0"),
        "zed": ("0.0", "0.0", "0.0"),
    }


def each_row_says_what_happened(graded: Path) -> None:
    table = rows(graded)
    assert table["hungry"]["status"] in ("graded", "memory"), "a MemoryError, where the system has such a limit"
    assert {name: row["status"] for name, row in table.items() if row["status"] not in ("graded", "memory")} == {
        "absent": "unreadable",
        "endless": "timeout",
        "gone": "crashed",
        "nothing": "empty",
        "picture": "unreadable",
        "zed": "empty",
    }
    assert table["absent"]["reason"] == "it contains no notebook"
    assert table["endless"]["reason"] in (
        "a cell ran for more than 2 s and did not stop, in the check of move",
        "the check of move was stopped after 2 s; the rest was run",
    )
    assert table["gone"]["reason"] == "its process ended by itself, with status 0, in move"
    assert table["nothing"]["reason"] == "the file is empty"
    assert table["picture"]["reason"].startswith("the file is not a notebook")
    assert table["ada"]["timestamp"] == "2026-11-02 10:00:00 UTC"
    assert table["ada"]["max_score"] == "7.0"


def a_written_answer_waits_for_a_person(graded: Path) -> None:
    table = rows(graded)
    assert (table["ada"]["needs_manual_grade"], table["ada"]["why"]) == ("why", "")
    assert (table["cy"]["needs_manual_grade"], table["cy"]["why"]) == ("", "0.0")


def locked_cells_are_put_back(graded: Path) -> None:
    notes = rows(graded)["dee"]["notes"]
    assert "the locked cell setup was edited: its text was restored" in notes
    assert "the check of place was edited: its text was restored" in notes
    assert "a copy of the check of place was removed" in notes
    assert "the check of move was missing: it was restored" in notes


def every_student_has_a_page_that_tells_all_but_the_hidden_tests(graded: Path) -> None:
    pages = {path.parts[-3]: path.read_text(encoding="utf-8") for path in graded.glob("feedback/*/two/two.html")}
    assert set(pages) == set(rows(graded))
    assert "6</span> of 7 points; 1 answer will be read by a person" in pages["ada"]
    assert "cuda:0" in pages["ada"], "the check's card"
    assert "its process ended by itself" in pages["gone"]
    assert "nothing was written" in pages["cy"]
    for page in pages.values():
        assert "<script" not in page
        assert "place(5)" not in page, "nothing of the hidden tests"
        assert "torch.ones(5)" not in page
    assert "not right in a part that is not shown" in pages["ben"]


def the_instructor_sees_what_failed_how_often_and_how(graded: Path) -> None:
    from fakegpu_lab.course.grade import graded_lesson, whole_class
    from fakegpu_lab.course.grade.outcome import Journal
    from fakegpu_lab.course.grade.outputs import tables
    from fakegpu_lab.course.grade.submissions import collect

    two = graded_lesson.load(graded / "source" / "two")
    limits = Limits(cell_seconds=2, memory_bytes=MIB * 2**20)
    journal = Journal(graded / "grades.csv.journal", limits, resume=True)
    submissions = collect(graded / "submitted", "two", "two")
    outcomes = whole_class.run(submissions, [two] * len(submissions), limits, [], journal)
    place, move, why = tables.summary(two, outcomes)
    assert (place.passed, place.partly, place.failed, place.unsolved) == (5, 1, 5, 1)
    assert place.mean == pytest.approx((5 * 3 + 2) / 11)
    assert (move.passed, move.partly, move.failed) == (2, 1, 8)
    assert (why.failed, why.unreached) == (10, 0)
    page = (graded / "grades.html").read_text(encoding="utf-8")
    assert re.search(r"11 submissions; \d+ did not finish", page)
    assert 'href="feedback/ada/two/two.html"' in page


def nbgrader_reads_the_gradebook(graded: Path) -> None:
    from nbgrader.api import Gradebook

    from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease

    with _nbgrader_at_ease(), Gradebook(f"sqlite:///{(graded / 'gradebook.db').as_posix()}") as book:
        scores = {one.student.id: one.score for one in book.assignment_submissions("two")}
        needs = [one.student.id for one in book.assignment_submissions("two") if one.needs_manual_grade]
        assert str(book.find_submission("two", "ada").timestamp) == "2026-11-02 10:00:00"
    assert scores == {name: float(row["score"]) for name, row in rows(graded).items()}
    assert needs == ["ada"]


def nbgrader_s_formgrader_finds_every_submission(graded: Path) -> None:
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    from fakegpu_lab.course.grade.outputs.gradebook import _nbgrader_at_ease

    api = NbGraderAPI(config=Config(CourseDirectory={"root": str(graded), "course_id": "two"}))
    with _nbgrader_at_ease():
        assert api.get_autograded_students("two") == set(rows(graded))
        assert len(api.get_notebook_submission_indices("two", "two")) == len(rows(graded)), "each opens in a page"
    shown = {name: nbformat.read(graded / "autograded" / name / "two" / "two.ipynb", 4) for name in rows(graded)}
    for name, notebook in shown.items():
        nbformat.validate(notebook)
        ids = [cell.metadata.nbgrader.grade_id for cell in notebook.cells if "nbgrader" in cell.metadata]
        assert {"setup", "place-check", "move-check"} <= set(ids), name
    ada = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in shown["ada"].cells}
    assert ada["why"].source == "It is where the weights are."
    assert "torch.ones(5)" in ada["move-check"].source, "hidden tests are there for the person who grades"
    assert "3 of 3 points" in ada["move-check"].outputs[0].data["text/plain"]
    assert "the file is empty" in shown["nothing"].cells[0].source
    assert (graded / "autograded" / "ada" / "two" / "timestamp.txt").read_text() == "2026-11-02 10:00:00 UTC"


def test_a_class_is_graded(graded: Path, subtests: pytest.Subtests) -> None:
    """One class for all of these: workers of pytest-xdist would each grade their own."""
    for holds in (
        everybody_has_a_row_and_the_right_points,
        each_row_says_what_happened,
        a_written_answer_waits_for_a_person,
        locked_cells_are_put_back,
        every_student_has_a_page_that_tells_all_but_the_hidden_tests,
        the_instructor_sees_what_failed_how_often_and_how,
        nbgrader_reads_the_gradebook,
        nbgrader_s_formgrader_finds_every_submission,
    ):
        with subtests.test(holds.__name__):
            holds(graded)
    with subtests.test("resume"), pytest.MonkeyPatch.context() as patch:
        one_worker_and_a_run_that_was_killed_give_the_same_grades(graded, patch)


def one_worker_and_a_run_that_was_killed_give_the_same_grades(graded: Path, patch: pytest.MonkeyPatch) -> None:
    """What was graded is not graded again; a torn line is not believed; a changed submission is."""
    from fakegpu_lab.course.grade import whole_class

    again: list[str] = []
    real = whole_class.grade

    def counted(submission: Any, *rest: Any) -> Any:
        again.append(submission.student)
        return real(submission, *rest)

    patch.setattr(whole_class, "grade", counted)
    lines = (graded / "grades.csv.journal").read_text().splitlines()
    students = [json.loads(line)["outcome"]["student"] for line in lines]
    keep = [line for line, name in zip(lines, students, strict=True) if name not in ("ben", "zed")]
    (graded / "again.csv.journal").write_text("\n".join(keep) + "\n" + lines[students.index("zed")][:99])
    grade(graded, "submitted", "--out", "again.csv", "--resume", *OPTIONS[:4])
    assert sorted(again) == ["ben", "zed"]
    assert rows(graded, "again.csv") == rows(graded)


def test_a_log_says_what_is_under_way(course: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """On a server, nothing was printed for a quarter of an hour."""
    course.grade()
    told = capsys.readouterr()
    assert told.out.splitlines()[:3] == [
        "Grading two: 2 submissions",
        "1 of 2: ada, 6 of 7 points",
        "2 of 2: ben, 0 of 7 points (unreadable: it contains no notebook)",
    ]
    assert told.err == ""


def test_the_lesson_s_own_solutions_are_announced_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_class(tmp_path)
    lesson = graded_lessons.load(tmp_path / "source" / "two")
    monkeypatch.setattr(one_submission, "_run", lambda *_: set())
    monkeypatch.setattr(one_submission, "_ALTERED", {})  # another test may have run this lesson's
    with grading._Log(PlainConsole()):
        for _ in range(2):
            one_submission._altered_by_solutions(lesson, Limits(), [])
    one_submission._LOG.info("later")
    assert capsys.readouterr().out == "Running the solutions of two once, for comparison\n"


def test_too_little_memory_is_refused_before_anything_runs(tmp_path: Path) -> None:
    source = made.source()
    (tmp_path / "source" / "two").mkdir(parents=True)
    nbformat.write(source, tmp_path / "source" / "two" / "two.ipynb")
    (tmp_path / "submitted" / "ada").mkdir(parents=True)
    with pytest.raises(FakeGpuError, match="--memory 100MiB: a notebook needs 256 MiB to import torch"):
        grade(tmp_path, "submitted", "--memory", "100MiB")


def test_a_platform_s_zip_is_read_without_leaving_its_folder(tmp_path: Path) -> None:
    source = made.source()
    (tmp_path / "course" / "source" / "two").mkdir(parents=True)
    nbformat.write(source, tmp_path / "course" / "source" / "two" / "two.ipynb")
    with zipfile.ZipFile(tmp_path / "moodle.zip", "w") as handed_in:
        handed_in.writestr("Ada L_77_assignsubmission_file_/two.ipynb", made.raw(made.submission(released(source))))
        handed_in.writestr("Bo_78_assignsubmission_file_/notes.txt", b"Sorry")
        handed_in.writestr("../../evil.ipynb", b"{}")
    grade(tmp_path / "course", str(tmp_path / "moodle.zip"), "--out", str(tmp_path / "zip.csv"))
    scores = {name: row["score"] for name, row in rows(tmp_path, "zip.csv").items()}
    assert scores == {"Ada L_77": "6.0", "Bo_78": "0.0"}
    assert not list(tmp_path.parent.parent.glob("evil.ipynb"))


def test_a_zip_with_entries_for_folders_is_read(tmp_path: Path) -> None:
    """As ``zip -r`` makes it: the submission's own folder was taken for a file of hers."""
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as handed_in:
        for name in ("ada/", "ada/two/", "ada/two/data/", "bo/"):
            handed_in.writestr(name, b"")
        handed_in.writestr("ada/two/two.ipynb", b"{}")
        handed_in.writestr("ada/two/data/table.csv", b"1")
    ada, bo = collect(tmp_path / "all.zip", "two", "two")
    assert ada.files == {"data/table.csv": b"1"}
    assert (bo.files, bo.problem) == ({}, "it contains no notebook")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as handed_in:
        handed_in.writestr("ada/", b"")
        handed_in.writestr("ada/two.ipynb", b"{}")
    (ada,) = collect(tmp_path / "one.zip", "two", "two")
    assert ada.files == {}


def test_a_file_that_is_not_a_notebook_is_a_submission_too(tmp_path: Path) -> None:
    """A script that was handed in had no row, and nobody asked where it was."""
    for name in ("ada_two.ipynb", "ada.txt", "tom.py", "lovelaceada_4711_90210_two.ipynb", "b_4712_90211_a.zip"):
        (tmp_path / name).write_bytes(b"{}")
    (tmp_path / "lovelaceada_4711_90212_helper.py").write_bytes(b"x = 1")
    found = {one.student: (one.problem, one.notes) for one in collect(tmp_path, "two", "two")}
    left_out = "was handed in, too: it is not a notebook, and was left out"
    assert found == {
        "ada": ("", [f"ada.txt {left_out}"]),
        "b_4712_90211_a": ("b_4712_90211_a.zip is not a notebook", []),
        "lovelaceada_4711_90210": ("", [f"lovelaceada_4711_90212_helper.py {left_out}"]),
        "tom": ("tom.py is not a notebook", []),
    }
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as handed_in:
        for name in ("class/ada/two.ipynb", "class/bo/two.ipynb", "class/tom.py", "eve.pdf"):
            handed_in.writestr(name, b"{}")
    found = {one.student: (one.problem, one.notes) for one in collect(tmp_path / "all.zip", "two", "two")}
    assert found["tom"] == ("tom.py is not a notebook", [])
    assert found["eve"] == ("eve.pdf is not a notebook", [])
    assert set(found) == {"ada", "bo", "eve", "tom"}
    (named,) = [one for one in collect(tmp_path, "two", "two", r"^(t\w+)\.") if one.student == "tom"]
    assert named.problem == "tom.py is not a notebook"


def test_who_hands_in_again_at_canvas_keeps_her_name(tmp_path: Path) -> None:
    names = ["lovelaceada_LATE_4711_90210_two-1.ipynb", "hoppergrace_4712_90211_two.ipynb", "b_4713_90213_two.pdf"]
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    assert [one.student for one in collect(tmp_path, "two", "two")] == [
        "b_4713_90213",
        "hoppergrace_4712",
        "lovelaceada_4711",
    ]
    (tmp_path / "hw_4712_90211_other.ipynb").write_bytes(b"{}")  # these are not Canvas's: two have the same number
    assert "hw_4712_90211_other" in [one.student for one in collect(tmp_path, "two", "two")]


def test_a_check_that_was_corrected_was_not_edited_by_a_student(tmp_path: Path) -> None:
    """Every student's page said so."""
    write_class(tmp_path)
    path = tmp_path / "source" / "two" / "two.ipynb"
    source = nbformat.read(path, 4)
    handed_in, edited = made.submission(released(source)), made.submission(released(source))
    edited.cells[5].source = "%%check move\nexpect.true(True)"
    odd = made.submission(released(source))
    odd.cells[5].metadata.nbgrader = nbformat.from_dict({"grade_id": "move-check", "checksum": {}, "points": "x"})
    source.cells[5].source = source.cells[5].source.replace("4.0)", "4.0, points=2)")
    nbformat.write(source, path)
    lesson = graded_lessons.load(path.parent)
    told = "the check of move was edited: its text was restored"
    for notebook, notes in ((handed_in, []), (edited, [told]), (odd, [told])):
        repaired = repair.repair(lesson, repair.read(made.raw(notebook)))
        assert repaired.notes == notes
        assert repaired.cells[4].source == source.cells[5].source, "graded by the check as it is now"


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"PK\x03\x04 from Word", "the file is not a notebook, but a zip or an Office document"),
        (b"\x89PNG\r\n", "the file is not a notebook, but a picture"),
        (b"\xef\xbb\xbf <html>", "the file is not a notebook, but a web page"),
        (b"print('hello')", "the file is not a notebook"),
        (b'{\n "cells": [\n', "the notebook is damaged in line 3"),
        (b'{"cells": "\xe9"', "the notebook is damaged"),
    ],
)
def test_what_is_not_a_notebook_is_said_in_words(raw: bytes, told: str) -> None:
    with pytest.raises(repair.UnreadableError) as error:
        repair.read(raw)
    assert str(error.value) == told


def result_of_check(source: str = "%%check a", problem: str = "", **message: Any) -> tuple[float | None, set[str]]:
    check, flags = CheckOutcome(grade_id="a-check", max_points=2), set[str]()
    score(check, source, {"outputs": [], "interrupted": False, **message}, flags, problem)
    assert check.ran
    assert bool(check.wrong) is not check.passed
    return check.points, flags


RECORD = {
    "title": "A",
    "parts": [{"met": False, "what": "it is 3", "found": "4"}, {"met": True, "what": "b", "found": ""}],
}


@pytest.mark.parametrize(
    ("score", "points"),
    [(0, 0), (0.5, 0.5), (1.999, 1.999), (2, 2), (2.0000000001, 2), (2.1, 0), (-0.1, 0), (float("nan"), 0)],
)
def test_a_score_is_the_points_if_it_is_possible(score: float, points: float) -> None:
    impossible = not 0 <= score <= 2.001
    for source in ("%%check a", "score"):
        got, flags = result_of_check(source, ended=True, has_value=True, score=score, record=RECORD)
        assert got == points
        assert flags == ({f"a-check: the check gave {score:g} of 2 points"} if impossible else set())


GOOD: dict[str, Any] = {"ended": True, "has_value": True, "score": 2.0, "record": RECORD}
ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "no"}
STDERR = {"output_type": "stream", "name": "stderr", "text": "oh"}
STDOUT = STDERR | {"name": "stdout"}


@pytest.mark.parametrize("source", ["%%check a", "score"])
def test_an_error_and_an_interrupt_earn_nothing(source: str) -> None:
    assert result_of_check(source, **GOOD) == (2.0, set())
    assert result_of_check(source, **GOOD | {"interrupted": True}) == (0.0, set())
    assert result_of_check(source, **GOOD | {"outputs": [ERROR]}) == (0.0, set())
    assert result_of_check(source, **GOOD | {"outputs": [STDERR, ERROR]}) == (0.0, set())
    assert result_of_check(source, **GOOD | {"outputs": [STDOUT]}) == (2.0, set())
    assert result_of_check(source, problem="it lied", **GOOD) == (0.0, {"a-check: it lied"})


def test_stderr_earns_nothing_where_the_check_decides_its_points_itself() -> None:
    """As in nbgrader. Where ``%%check`` judges each part, an answer may log and warn."""
    assert result_of_check("%%check a", **GOOD | {"outputs": [STDERR]}) == (2.0, set())
    assert result_of_check("score", **GOOD | {"outputs": [STDERR]}) == (0.0, set())
    assert result_of_check("assert True", ended=True, outputs=[STDERR]) == (0.0, set())


def test_a_check_of_assertions_earns_all_when_it_ended() -> None:
    """As in nbgrader: a cell that raises nothing and has no value."""
    assert result_of_check("assert True", ended=True) == (2.0, set())
    assert result_of_check("assert True", ended=True, has_value=True, score=None) == (2.0, set())
    assert result_of_check("assert True") == (0.0, {"a-check: the check gave no result"})


def test_what_was_wrong_is_said() -> None:
    check = CheckOutcome(grade_id="a-check", max_points=2)
    message = {"outputs": [], "interrupted": False, "ended": True, "has_value": True, "score": 1.0, "record": RECORD}
    score(check, "%%check a", message, set())
    assert (check.title, check.wrong) == ("A", ["it should be 3; found: 4"])
    follows = [{"met": False, "what": "`y` is 3", "found": "what it needs could not be computed: see above"}]
    message |= {"record": {"parts": RECORD["parts"] + follows}}  # type: ignore[operator]
    score(check, "%%check a", message, set())
    assert check.wrong == ["it should be 3; found: 4"], "one cause, once"
    message |= {"record": RECORD | {"note": "The cell above ended with an error: ValueError: no"}, "score": 0.0}
    score(check, "%%check a", message, set())
    assert check.wrong == ["its cell ended with an error: ValueError: no"]
    message |= {"record": None, "outputs": [{"output_type": "error", "ename": "SyntaxError", "evalue": ""}]}
    score(check, "%%check a", message, set())
    assert check.wrong == ["SyntaxError"]
    message |= {"outputs": [{"output_type": "stream", "name": "stderr", "text": " late \n"}]}
    score(check, "score", message, set())
    assert check.wrong == ["it wrote to stderr: late"]
    message |= {"outputs": [], "record": {"parts": [], "unsolved": True}, "score": 0.0}
    score(check, "%%check a", message, set())
    assert check.wrong == ["nothing was written"]


def test_the_course_and_its_history_are_hidden(tmp_path: Path) -> None:
    lesson = tmp_path / "repository" / "course" / "source" / "two"
    lesson.mkdir(parents=True)
    (tmp_path / "repository" / ".git").mkdir()
    assert {tmp_path / "repository" / ".git", tmp_path / "repository" / "course"} <= set(grading._histories(lesson))
    assert grading._histories(tmp_path / "repository") in ([], [tmp_path / ".git"])


def test_an_answer_that_is_no_python_is_the_reason() -> None:
    error = {"output_type": "error", "ename": "SyntaxError", "evalue": "invalid syntax (<ipython-input-5-e3>, line 2)"}
    assert _no_python("move", [error]) == "move is not valid Python (line 2: invalid syntax)"
    assert _no_python("move", [error | {"ename": "ValueError"}, {"output_type": "stream", "text": ""}]) == ""


def test_a_check_without_a_result_earns_nothing_and_is_flagged() -> None:
    """A patched function that returned ``{}`` was enough for all points."""
    assert result_of_check() == (0.0, {"a-check: the check gave no result"})
    assert result_of_check(ended=True) == (0.0, {"a-check: the check gave no result"})
    assert result_of_check(interrupted=True) == (0.0, set())
    error = {"output_type": "error", "ename": "TypeError", "evalue": "of the machinery"}
    assert result_of_check(outputs=[error]) == (0.0, {"a-check: the check gave no result"})
    assert result_of_check("assert x", outputs=[error]) == (0.0, set()), "a check of assertions ends so"


def test_what_students_wrote_is_shown_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rich takes brackets for marks of its own: ``[/red]`` was an error, and ``[p.grad]`` was gone."""
    write_class(tmp_path)
    lesson = graded_lessons.load(tmp_path / "source" / "two")
    told = "ValueError: [/red] [p.grad for p in parameters] :smile:"
    checks = [
        CheckOutcome(grade_id=cell.grade_id, points=0, max_points=cell.points, ran=True, answer=True, wrong=[told])
        for cell in lesson.checks
    ]
    outcome = Outcome(student="ada", lesson="two", digest="", checks=checks)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        grading._print_summary(PlainConsole(), lesson, [outcome], Path("grades.csv"), Path("grades.html"), [lesson])
    assert told in capsys.readouterr().out
    checks[0].wrong = ["a long sentence " * 20]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        grading._print_summary(PlainConsole(), lesson, [outcome], Path("grades.csv"), Path("grades.html"), [lesson])
    assert "sentence a long … " in capsys.readouterr().out, "cut between words"


@pytest.mark.long
def test_one_exercise_is_graded_again_and_the_others_keep_their_points(tmp_path: Path) -> None:
    """After a check was corrected: the class's other points do not change, nor does anybody run twice for them."""
    source = made.source()
    folder = tmp_path / "source" / "two"
    folder.mkdir(parents=True)
    nbformat.write(source, folder / "two.ipynb")
    starter = released(source)
    for student in ("ada", "ben"):
        (tmp_path / "submitted" / student / "two").mkdir(parents=True)
        raw = made.raw(
            made.submission(starter, move=ONLY_WHAT_IS_SHOWN) if student == "ben" else made.submission(starter)
        )
        (tmp_path / "submitted" / student / "two" / "two.ipynb").write_bytes(raw)
    (tmp_path / "submitted" / "ben" / "two" / "timestamp.txt").write_text("2026-11-02 10:00:00 UTC")
    grade(tmp_path, "submitted", "--jobs", "2")
    before = rows(tmp_path)
    assert (before["ada"]["move-check"], before["ben"]["move-check"]) == ("3.0", "2.0")
    source.cells[3].source = "0.0"  # would take the points of `place` from everybody
    hidden = "expect.equal(move(torch.ones(5)).sum().item(), 5.0)"
    assert hidden in source.cells[5].source
    source.cells[5].source = source.cells[5].source.replace(
        hidden, "expect.equal(move(torch.ones(4)).sum().item(), 4.0)"
    )
    nbformat.write(source, folder / "two.ipynb")
    (tmp_path / "canvas.csv").write_text("Student,ID,SIS Login ID,Section\nAda,1,ada,\nBen,2,ben,\n", encoding="utf-8")
    late = ["--due", "2026-11-01 23:59 UTC", "--late-penalty", "50"]
    grade(tmp_path, "submitted", "--regrade", "move", "--format", "canvas", "--roster", "canvas.csv", *late)
    after = rows(tmp_path)
    with (tmp_path / "grades.canvas.csv").open(newline="", encoding="utf-8") as file:
        assert [row[-1] for row in csv.reader(file)] == ["two", "7", "6", "3"]
    shown = ("place-check", "move-check", "raw_score", "late_submission_penalty", "score", "days_late")
    assert {name: [row[column] for column in shown] for name, row in after.items()} == {
        "ada": ["3.0", "3.0", "6.0", "0.0", "6.0", ""],
        "ben": ["3.0", "3.0", "6.0", "3.0", "3.0", "1"],
    }


def test_regrading_what_is_not_there_has_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "source" / "two").mkdir(parents=True)
    nbformat.write(made.source(), tmp_path / "source" / "two" / "two.ipynb")
    (tmp_path / "submitted" / "ada").mkdir(parents=True)
    with pytest.raises(FakeGpuError, match=r"two has no such exercise\. It has place, move, why"):
        grade(tmp_path, "submitted", "--regrade", "moves")
    with pytest.raises(FakeGpuError, match="there is nothing to regrade"):
        grade(tmp_path, "submitted", "--regrade", "move")
    with pytest.raises(FakeGpuError, match="--format and --roster must be used together"):
        grade(tmp_path, "submitted", "--format", "canvas")


def test_a_roster_of_another_platform_is_refused_before_anything_runs(tmp_path: Path) -> None:
    write_class(tmp_path)
    (tmp_path / "roster.csv").write_text("Student,ID\nAda,1\n", encoding="utf-8")
    with pytest.raises(FakeGpuError, match="In Moodle, download the assignment's grading worksheet"):
        grade(tmp_path, "submitted", "--format", "moodle", "--roster", "roster.csv")
    assert not (tmp_path / "grades.csv.journal").exists()
