"""What an instructor has of a class after the deadline: times, extensions, figures, comments, likeness."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course.checks import card
from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.grade import whole_class
from fakegpu_lab.course.grade.outcome import CellOutcome, CheckOutcome, Outcome
from fakegpu_lab.course.grade.outputs import comments, lateness, pages, platforms, similar, tables
from fakegpu_lab.hardware.errors import FakeGpuError
from tests.course import quick_course
from tests.course.test_gradebooks import CANVAS, WORKSHEET, lesson, outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tests.course.quick_course import Course

DUE = "2026-11-20 23:59 UTC"


def test_an_extension_is_one_student_s_deadline(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("student,due,why\nada,2026-11-22 12:00 UTC,ill\nben,2026-11-23,\n")
    deadline = lateness.deadline(DUE, 0, 10, tmp_path / "more.csv")
    late = "2026-11-22 11:00 UTC"
    assert deadline.lateness(outcome("ada", 8.0, late)) == (0, 0.0)
    assert deadline.lateness(outcome("ben", 8.0, late)) == (0, 0.0), "a day is over at its end"
    assert deadline.lateness(outcome("cy", 8.0, late)) == (2, 1.6)
    assert [deadline.about(outcome(name, 8.0, late)) for name in ("ada", "cy")] == [
        "own deadline 2026-11-22 12:00",
        "2 days late",
    ]


@pytest.mark.parametrize(
    ("late", "free", "told"),
    [
        ("2026-11-20 10:00 UTC", 1, ""),
        ("2026-11-21 10:00 UTC", 0, "1 day late"),
        ("2026-11-21 10:00 UTC", 2, "1 day late (1 of them free)"),
        ("2026-11-22 10:00 UTC", 1, "2 days late (1 of them free)"),
        ("", 1, ""),
    ],
)
def test_how_late_it_was_is_said_with_the_days_that_are_free(late: str, free: int, told: str) -> None:
    assert lateness.deadline(DUE, free, 10).about(outcome("ada", 8.0, late)) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such file"),
        ("name,due\nada,2026-11-20\n", "columns student and due"),
        ("student,time\nada,2026-11-20\n", "columns student and due"),
        ("student,due\nada,soon\n", "'soon' is not a date"),
    ],
)
def test_a_file_of_extensions_that_cannot_be_read_has_a_sentence(text: str | None, told: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "more.csv").write_text(text)
    with pytest.raises(FakeGpuError, match=told):
        lateness.deadline(DUE, 0, 10, tmp_path / "more.csv")
    with pytest.raises(FakeGpuError, match="--extensions need --due"):
        lateness.deadline(None, 0, 0, tmp_path / "more.csv")


def roster(tmp_path: Path, platform: str, text: str) -> platforms.Roster:
    (tmp_path / "roster.csv").write_text(text, encoding="utf-8")
    return platforms.Roster(platform, tmp_path / "roster.csv")


def test_moodle_s_worksheet_says_when_something_was_handed_in(tmp_path: Path) -> None:
    students = roster(tmp_path, "moodle", WORKSHEET)
    told = students.time_of("Ada Lovelace_7001", {})
    assert lateness.parse_time(told) == lateness.parse_time("2026-11-20 09:00")
    assert students.time_of("Grace Hopper_7002", {}) == ""
    assert students.time_of("Nobody_1", {}) == ""
    german = WORKSHEET.replace("Friday, 20 November 2026, 9:00 AM", "Freitag, 20. Dezember 2026, 09:00")
    with pytest.raises(FakeGpuError, match=r"“Freitag, 20\. Dezember 2026, 09:00” cannot be read"):
        roster(tmp_path, "moodle", german).time_of("Ada Lovelace_7001", {})


def test_canvas_s_list_of_submissions_says_when_something_was_handed_in(tmp_path: Path) -> None:
    rows = [
        {"user_id": 101, "submitted_at": "2026-11-21T07:30:00Z", "late": True},
        {"user_id": 102, "submitted_at": None},
    ]
    (tmp_path / "times.json").write_text(json.dumps(rows))
    times = lateness.times(tmp_path / "times.json")
    students = roster(tmp_path, "canvas", CANVAS)
    for name in ("lovelaceada_LATE_101_90210", "ada"):
        assert students.time_of(name, times) == "2026-11-21T07:30:00Z"
    assert platforms.time_of("lovelaceada_101_90210", times) == "2026-11-21T07:30:00Z"
    assert students.time_of("grace", times) == ""
    for text in ("{}x", '[{"id": 3}]', "[3]"):
        (tmp_path / "times.json").write_text(text)
        with pytest.raises(FakeGpuError, match="not Canvas's list of submissions"):
            lateness.times(tmp_path / "times.json")


def test_the_platform_s_time_counts_where_nbgrader_has_none(course: Course) -> None:
    """Ada's submission has nbgrader's own time, and keeps it."""
    (course.folder / "times.csv").write_text("student,time\nada,2026-11-25 10:00 UTC\nben,2026-11-25 10:00 UTC\n")
    row = course.grade("--due", "2026-11-02 09:00 UTC", "--late-penalty", "10", "--times", "times.csv")
    assert (row["timestamp"], row["days_late"]) == ("2026-11-02 10:00:00 UTC", "1")
    (course.folder / "submitted" / "ada" / "two" / "timestamp.txt").unlink()
    row = course.grade("--due", "2026-11-02 09:00 UTC", "--late-penalty", "10", "--times", "times.csv", "--resume")
    assert (row["timestamp"], row["days_late"]) == ("2026-11-25 10:00 UTC", "24")


LATE = ("--due", "2026-11-01 12:00 UTC", "--late-penalty", "50")


def test_a_run_that_goes_on_has_the_options_of_the_run_before(
    course: Course, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a check was corrected, the penalties were gone, and so were the points that a person had given."""
    asked = ["grade", "--lesson", "two", "submitted"]
    course.grade(*LATE, "--jobs", "2")
    capsys.readouterr()
    for more in (["--regrade", "move"], ["--resume"]):
        (course.folder / "feedback" / "ada" / "two" / "two.html").unlink()
        assert not cli.main([*asked, *more], standalone_mode=False)
        assert (course.row()["late_submission_penalty"], course.row()["score"]) == ("3.0", "3.0")
        assert "3</span> of 7 points" in course.page()
        told = capsys.readouterr().out
        assert "As in the run before (grades.csv.options.yaml): --feedback feedback --gradebook gradebook.db" in told
        assert "--due '2026-11-01 12:00 UTC' --late-penalty 50.0\n" in told
    assert not cli.main([*asked, "--resume", "--late-penalty", "0"], standalone_mode=False)
    assert course.row()["score"] == "6.0", "what is given now counts"
    assert not cli.main(asked, standalone_mode=False)
    assert course.row()["duedate"] == "", "a new run begins without"
    (course.folder / "grades.csv.options.yaml").write_text("lesson: [two")
    with pytest.raises(FakeGpuError, match=r"grades\.csv\.options\.yaml cannot be read"):
        cli.main([*asked, "--resume"], standalone_mode=False)


def answered(student: str, points: list[float], source: str = "") -> Outcome:
    checks = [CheckOutcome(grade_id=f"e{n}-check", points=one, max_points=2) for n, one in enumerate(points)]
    cells = [CellOutcome(id="e0", kind="student", source=source)]
    return Outcome(student=student, lesson="two", digest="", checks=checks, cells=cells)


def three(points: float = 2) -> Any:
    given = lesson()
    cells = [given.cells[0].model_copy(update={"grade_id": f"e{n}-check", "points": points}) for n in range(3)]
    asked = {"grade_id": "e0", "solution": True, "grade": False, "locked": False, "source": "def f(x): return x"}
    return given.model_copy(update={"cells": [given.cells[0].model_copy(update=asked), *cells]})


CLASS = [answered(f"s{n}", [two, two, 2 - two]) for n, two in enumerate([2, 2, 1, 1, 0, 0])]


def test_how_hard_an_exercise_is_and_whom_it_tells_apart() -> None:
    e0, e1, e2 = tables.summary(three(), CLASS)
    assert (e0.difficulty, e1.difficulty, e2.difficulty) == (0.5, 0.5, 0.5)
    assert e2.discrimination == pytest.approx(-1)
    assert e0.discrimination is None, "its points and the rest's: the rest of everyone is the same"
    without = [answered(one.student, [check.points or 0 for check in one.checks[:2]]) for one in CLASS]
    assert tables.summary(three(), without)[0].discrimination == pytest.approx(1)
    assert tables.summary(three(), without[:2])[0].discrimination is None


def test_the_page_has_points_by_exercise_and_their_distribution() -> None:
    page = re.sub(r">\s+<", "><", pages.summary(three(), CLASS, [""] * len(CLASS)))
    cells = "".join(f'<td class="n">{number}</td>' for number in (4, 2, 2, 0))
    assert '<th class="n">e0</th><th class="n">e1</th><th class="n">e2</th>' in page
    assert f"<td>s0</td>{cells}" in page
    assert '<b class="bad">-1.00</b>' in page
    found = pages._distribution([0, 0.59, 0.6, 5.9, 6], 6)
    assert [name for name, _ in found][:2] == ["0 to 0.6", "0.6 to 1.2"]
    assert [count for _, count in found] == [2, 1, 0, 0, 0, 0, 0, 0, 0, 2]


def test_tables_show_code_as_code_and_titles_for_exercises() -> None:
    one = answered("ada", [0, 2])
    one.checks[0].title, one.checks[0].ran = "Batches", True
    one.checks[0].wrong = ["`f(<b>)` should run without an error; found: `f` is not defined", "a long word " * 50]
    told = "<code>f(&lt;b&gt;)</code> should run without an error; found: <code>f</code> is not defined"
    page = pages.feedback(one)
    assert f"✗ {told}" in page
    assert ">Batches</a>" in page
    page = pages.summary(three(), [one], [""])
    assert f'<td class="words"><ul><li>1 × {told}</li>' in page
    assert "a long word a long..." in page
    hidden = {"what": "`f(5)` is 3", "met": False, "points": 1, "earned": 0, "hidden": True}
    one.checks[0].record = {"exercise": "e0", "score": 0, "points": 1, "parts": [hidden]}
    for text in ("`f(5)` should be 3; found: 4", "`f(5)` is 3: 4"):
        one.checks[0].wrong = [text]
        assert "f(5)" not in pages.feedback(one)


def test_a_card_has_the_page_s_colors() -> None:
    """In the dark, its text was dark, too."""
    record = CheckRecord(exercise="e0", score=1, points=2, parts=(PartRecord(what="x", met=False, points=1, earned=0),))
    named = set(re.findall(r"--jp-[\w-]+", card.html(record)))
    (light, dark, *_) = (pages._TEMPLATES / "page.css").read_text(encoding="utf-8").splitlines()
    for name in named:
        (own,) = re.findall(rf"{name}: var\((--\w+)\)", light)
        assert f"{own}: #" in dark
    assert named


def test_each_remark_of_a_check_has_its_own_line() -> None:
    one = answered("ada", [1])
    part = {"what": "it is 3", "met": False, "points": 1, "earned": 0, "hidden": True}
    one.cells.append(CellOutcome(id="e0-check", kind="check", source=""))
    one.checks[0].record = {"exercise": "e0", "score": 0, "points": 1, "note": "It wrote: a", "parts": [part]}
    page = pages.feedback(one)
    assert "It wrote: a</div>" in page
    assert ">Parts that are not shown earned 0 of 1 point.</div>" in page


def test_a_comment_fits_the_words_of_a_page() -> None:
    check = CheckOutcome(grade_id="e0", max_points=2, points=0, wrong=["`f(4)` should be 3; found: 4"])
    assert comments.Comment(comment="Look again.", wrong="f(4) should be 3").fits("ada", check)


def test_wrong_answers_are_counted_by_what_was_expected() -> None:
    """Where a check draws its numbers, what was found is never the same."""
    made = [answered(f"s{n}", [0, 2]) for n in range(4)]
    for one, found in zip(made, ("4", "5", "5", "6"), strict=True):
        one.checks[0].wrong = [f"it should be 3; found: {found}"]
    made[0].checks[0].wrong += ["one copy; found: 7", "it should be 3; found: 9"]
    row = tables.summary(three(), made)[0]
    assert row.wrong == [("it should be 3, found, for example: 5", 4), ("one copy; found: 7", 1)]


LONG = """%%exercise e0
def moved(rows, device="cuda"):
    result = []
    for row in rows:
        # to the GPU, one by one
        copied = row.to(device)
        result.append(copied * 2 + 1)
    return torch.stack(result).sum(dim=0)
"""
RENAMED = (
    LONG.replace("moved", "f").replace("result", "out").replace("copied", "y").replace("rows", "xs").replace("row", "x")
    .replace("# to the GPU, one by one", "print('moving')")
    .replace("def f", '"""My own."""\ndef f')
)  # fmt: skip
OTHER = LONG.replace("for row in rows:", "for row in reversed(rows):").replace(
    "return torch.stack(result).sum(dim=0)", "table = torch.cat(result)\n    return table.view(-1, 4).mean() / 2"
)


def test_answers_that_are_nearly_the_same_are_found_and_others_are_not() -> None:
    made = [answered("ada", [2], LONG), answered("ben", [2], RENAMED), answered("cy", [2], OTHER)]
    found = similar.groups(three(), made)
    assert found == [similar.Group("e0", [("ada", LONG), ("ben", RENAMED)], 1.0)]
    nearly = LONG.replace("* 2 + 1", "* 2 + 3")
    more = [answered(f"dan{n}", [2], LONG.replace("+ 1", f"+ {n + 7}")) for n in range(2)]
    together = similar.groups(three(), [answered("eve", [2], nearly), *more, *made])
    assert [[who for who, _ in one.answers] for one in together] == [["ada", "ben", "dan0", "dan1", "eve"]], (
        "six pairs and more were shown for a group of five"
    )
    page = pages.similar(three(), [answered("ada", [2], LONG), answered("ben", [2], RENAMED + "# <script>")])
    assert "This is no verdict" in page
    assert "e0: ada, ben" in page
    assert "<script" not in page


def test_what_is_short_common_or_given_is_not_shown() -> None:
    assert similar.groups(three(), [answered("ada", [2], "x = y.cuda()"), answered("ben", [2], "x = y.cuda()")]) == []
    assert similar.groups(three(), [answered(f"s{n}", [2], LONG) for n in range(9)]) == []
    given = three()
    given.cells[0].source = LONG
    assert similar.groups(given, [answered("ada", [2], LONG), answered("ben", [2], LONG)]) == []
    assert similar.groups(three(), [answered("ada", [2], "def f(:"), answered("ben", [2], "def f(:")]) == []


COMMENTS = """
move:
- wrong: on the CPU
  comment: Look at lesson 1 again.
- students: [ben]
  comment: We talked about this.
- comment: Everyone who lost points.
"""


def test_comments_are_for_everyone_whose_answer_they_fit(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(COMMENTS)
    found = comments.read(tmp_path / "c.yaml", ["move", "place"])

    def about(student: str, points: float | None, *wrong: str) -> str:
        check = CheckOutcome(grade_id="move-check", points=points, max_points=2, wrong=list(wrong), comment="By hand.")
        made = comments.added(Outcome(student=student, lesson="", digest="", checks=[check]), found)
        assert check.comment == "By hand."
        return made.checks[0].comment.removeprefix("By hand.").strip()

    assert about("ada", 1, "x is on cuda:0: it is On the CPU") == "Look at lesson 1 again.\nEveryone who lost points."
    assert about("ben", 2) == "We talked about this."
    assert about("cy", 0, "an error") == "Everyone who lost points."
    assert about("cy", None) == about("cy", 2) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "no such file"),
        ("moves:\n- comment: x", r"no exercise moves\. It has move"),
        ("move:\n- coment: x", "comment"),
        ("move: [", "while parsing"),
    ],
)  # fmt: skip
def test_comments_that_cannot_be_read_have_a_sentence(text: str | None, told: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(FakeGpuError, match=told):
        comments.read(tmp_path / "c.yaml", ["move"])


def test_comments_are_on_the_student_s_page_and_in_moodle_s_file(
    course: Course, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def graded(*asked: Any) -> Any:
        made = quick_course.outcome_of(*asked)
        for check in made.checks:
            check.points = min(check.points or 0, 1)
        return made

    monkeypatch.setattr(whole_class, "grade", graded)
    (course.folder / "r.csv").write_text(WORKSHEET.replace("ada@uni.example", "ada"), encoding="utf-8")
    (course.folder / "c.yaml").write_text(
        "place:\n- students: [eve]\n  comment: Hello\nmove:\n- comment: Read <b>lesson 1</b>.\n"
    )
    course.grade(*LATE, "--comments", "c.yaml", "--similar", "similar.html", "--format", "moodle", "--roster", "r.csv")
    assert "Read &lt;b&gt;lesson 1&lt;/b&gt;." in course.page()
    assert '<span class="score">1</span> of 7 points: 2 earned, and −1 because it was 1 day late' in course.page()
    page = (course.folder / "grades.html").read_text(encoding="utf-8")
    assert "<b>2 − 1</b>: 1 day late; " in page
    assert "median 1, before what lateness costs" in page
    assert "This comment fits nobody: place: Hello" in capsys.readouterr().out
    moodle = (course.folder / "grades.moodle.csv").read_text(encoding="utf-8")
    assert "Move: 1 of 3 (Read &lt;b&gt;lesson 1&lt;/b&gt;.)" in moodle, "Moodle shows comments as HTML"
    assert "; 1 day late: −1" in moodle
    assert "There are none" in (course.folder / "similar.html").read_text(encoding="utf-8")
