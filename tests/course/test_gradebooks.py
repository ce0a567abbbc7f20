"""Grades as Canvas and Moodle import them, and what being late costs."""

from __future__ import annotations

import csv
import datetime as dt
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.course.grade.graded_lesson import GradedLesson, LessonCell
from fakegpu_lab.course.grade.outcome import CheckOutcome, Outcome
from fakegpu_lab.course.grade.outputs import lateness, platforms, tables
from fakegpu_lab.course.grade.outputs.lateness import NEVER, Deadline, parse_time
from fakegpu_lab.course.grade.submissions import Submission
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outputs.platforms import Written


def lesson(points: float = 10) -> GradedLesson:
    cell = LessonCell(
        grade_id="one-check",
        cell_type="code",
        source="",
        visible="",
        grade=True,
        solution=False,
        locked=True,
        points=points,
    )
    return GradedLesson(
        name="01-device-placement",
        notebook="01-device-placement",
        cells=[cell],
        shown=[],
        exercises={},
        allow=[],
        files={},
        given_by_solution=[],
        digest="",
    )


def outcome(student: str, points: float | None, timestamp: str = "") -> Outcome:
    check = CheckOutcome(grade_id="one-check", title="One copy", points=points, max_points=10)
    return Outcome(student=student, lesson="01-device-placement", digest=student, timestamp=timestamp, checks=[check])


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,01 Device placement (4711),Final Score
    Points Possible,,,,,10,(read only)
"Lovelace, Ada",101,S1,ada,Monday,,
"Hopper, Grace",102,S2,grace,Monday,3,
"Student, Test",199,,,Monday,,
"""
"""As Canvas exports it (Instructure's guide, “How do I export grades in the Gradebook?”)."""

WORKSHEET = """Identifier,Full name,Email address,Status,Grade,Maximum grade,Grade can be changed,Last modified (submission),Last modified (grade),Feedback comments
Participant 7001,Ada Lovelace,ada@uni.example,Submitted for grading,,100.00,Yes,"Friday, 20 November 2026, 9:00 AM",-,
Participant 7002,Grace Hopper,grace@uni.example,No submission,,100.00,Yes,-,-,
"""  # noqa: E501
"""As Moodle's assignment offers it (MoodleDocs, “Using Assignment”: Offline grading worksheet)."""


def written(tmp_path: Path, platform: str, roster: str, *outcomes: Outcome) -> tuple[list[list[str]], Written]:
    (tmp_path / "roster.csv").write_text(roster, encoding="utf-8")
    students = platforms.Roster(platform, tmp_path / "roster.csv")
    told = platforms.write(students, tmp_path / "out.csv", lesson(), list(outcomes), NEVER)
    with told.path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file)), told


def test_canvas_gets_its_own_columns_and_the_assignment_it_knows(tmp_path: Path) -> None:
    table, told = written(tmp_path, "canvas", CANVAS, outcome("ada", 7.5), outcome("Hopper, Grace", 0.0))
    assert table == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "01 Device placement (4711)"],
        ["    Points Possible", "", "", "", "", "10"],
        ["Lovelace, Ada", "101", "S1", "ada", "Monday", "7.5"],
        ["Hopper, Grace", "102", "S2", "grace", "Monday", "0"],
    ]
    assert (told.students, told.unknown, told.pending, told.scale) == (2, [], [], 1.0)


def test_canvas_makes_an_assignment_of_a_lesson_that_it_does_not_know(tmp_path: Path) -> None:
    roster = "Student,ID,SIS User ID,SIS Login ID,Section\nA,1,,a,\n"
    table, _ = written(tmp_path, "canvas", roster, outcome("a", 7.5))
    assert [row[-1] for row in table] == ["01-device-placement", "10", "7.5"]


def test_what_moodle_leaves_empty_comes_back_as_it_was(tmp_path: Path) -> None:
    table, _ = written(tmp_path, "moodle", WORKSHEET, outcome("Ada Lovelace_7001", 7.5))
    assert [row[8] for row in table[1:]] == ["-", "-"]


def test_a_student_without_a_submission_keeps_the_grade_that_canvas_has(tmp_path: Path) -> None:
    table, _ = written(tmp_path, "canvas", CANVAS, outcome("ada", 7.5))
    assert [row[0] for row in table[2:]] == ["Lovelace, Ada"], "an empty cell would delete the grade of Grace"


@pytest.mark.parametrize(
    "name", ["lovelaceada_101_102", "lovelaceada_LATE_101_90210", "ADA", " lovelace,  ada ", "S1", "101"]
)
def test_students_are_found_under_the_names_that_platforms_give_them(tmp_path: Path, name: str) -> None:
    table, told = written(tmp_path, "canvas", CANVAS, outcome(name, 7.5))
    assert told.unknown == []
    assert table[2][0] == "Lovelace, Ada"


def test_students_of_canvas_have_their_logins_and_names(tmp_path: Path) -> None:
    """Who handed in again was somebody else for extensions, comments and flags' notes: the file's name had changed."""
    (tmp_path / "roster.csv").write_text(CANVAS, encoding="utf-8")
    roster = platforms.Roster("canvas", tmp_path / "roster.csv")
    found = [Submission(student=name) for name in ("lovelaceada_101", "ada (2)", "mallory", "x_102", "y_102")]
    roster.name(found)
    assert [one.student for one in found] == ["ada", "ada (2)", "mallory", "grace", "y_102"]
    tables.write(
        tmp_path / "grades.csv", lesson(), [outcome("grace", 1.0), outcome("mallory", 1.0)], person=roster.person
    )
    with (tmp_path / "grades.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["student_id"], row["last_name"], row["first_name"]) for row in csv.DictReader(file)]
    assert rows == [("grace", "Hopper", "Grace"), ("mallory", "", "")]
    (tmp_path / "roster.csv").write_text(WORKSHEET, encoding="utf-8")
    moodle = platforms.Roster("moodle", tmp_path / "roster.csv")
    assert moodle.person("Ada Lovelace_7001") == ("Ada Lovelace", "", "ada@uni.example")
    assert moodle.person("nobody") == ("", "", "")


def test_nobody_gets_the_grade_of_somebody_else(tmp_path: Path) -> None:
    twins = CANVAS + '"Lovelace, Ada",103,S3,ada2,Tuesday,,\n'
    table, told = written(
        tmp_path, "canvas", twins, outcome("Lovelace, Ada", 7.5), outcome("mallory", 10), outcome("", 1)
    )
    assert told.unknown == ["Lovelace, Ada", "mallory", ""]
    assert len(table) == 2
    again = written(tmp_path, "canvas", CANVAS, outcome("ada", 7.5), outcome("lovelaceada_101_1", 2))[1]
    assert (again.students, again.unknown) == (1, ["lovelaceada_101_1"])


def test_a_grade_that_waits_for_a_person_is_left_out(tmp_path: Path) -> None:
    table, told = written(tmp_path, "canvas", CANVAS, outcome("ada", None))
    assert (told.pending, len(table)) == (["ada"], 2)


def test_moodle_gets_its_worksheet_back_with_grades_on_its_scale(tmp_path: Path) -> None:
    table, told = written(tmp_path, "moodle", WORKSHEET, outcome("Ada Lovelace_7001", 7.5))
    head, ada, grace = table
    assert head == WORKSHEET.partition("\n")[0].split(",")
    assert dict(zip(head, ada, strict=True)) | {"Grade": "75", "Feedback comments": "One copy: 7.5 of 10"} == dict(
        zip(head, ada, strict=True)
    )
    assert ada[head.index("Last modified (submission)")] == "Friday, 20 November 2026, 9:00 AM"
    assert grace[head.index("Grade")] == ""
    assert told.scale == 10


def test_moodle_s_participants_are_enough_for_its_gradebook(tmp_path: Path) -> None:
    roster = "\ufeffFirst name;Last name;ID number;Email address;Groups\nAda;Lovelace;;ada@uni.example;\n"
    table, _ = written(tmp_path, "moodle", roster, outcome("ada lovelace", 7.5))
    assert table == [
        ["First name", "Last name", "ID number", "Email address", "01-device-placement"],
        ["Ada", "Lovelace", "", "ada@uni.example", "7.5"],
    ]


@pytest.mark.parametrize(
    ("platform", "roster", "sentence"),
    [
        ("canvas", WORKSHEET, "Grades > Export > Export Entire Gradebook"),
        ("moodle", CANVAS, "one of Username, ID number, Email address, Identifier must be there"),
        ("moodle", "Identifier,Full name,Grade\nParticipant 1,A,\n", "without the column “Last modified (grade)”"),
        ("canvas", "Student,ID\n", "has no students"),
    ],
)
def test_a_wrong_roster_has_a_sentence(tmp_path: Path, platform: str, roster: str, sentence: str) -> None:
    with pytest.raises(FakeGpuError, match=re.escape(sentence)):
        written(tmp_path, platform, roster, outcome("ada", 1))
    assert not (tmp_path / "out.csv").exists()


def test_what_a_roster_must_be(tmp_path: Path) -> None:
    with pytest.raises(FakeGpuError, match=r"nowhere\.csv: there is no such file"):
        platforms.Roster("canvas", tmp_path / "nowhere.csv")
    (tmp_path / "excel.csv").write_bytes(b"\xff\xfeS\x00t\x00")
    with pytest.raises(FakeGpuError, match="not UTF-8 text"):
        platforms.Roster("moodle", tmp_path / "excel.csv")


DUE = "2026-11-20 23:59:00 UTC"


@pytest.mark.parametrize(
    ("timestamp", "days", "penalty"),
    [
        ("2026-11-20 23:59:00 UTC", 0, 0.0),
        ("2026-11-20 23:59:00.1 UTC", 1, 0.0),
        ("2026-11-21 23:59:00 UTC", 1, 0.0),
        ("2026-11-22 00:00:00 UTC", 2, 2.0),
        ("2026-11-22 01:30:00 Europe/Berlin", 2, 2.0),
        ("2026-11-22 00:30:00 Europe/Berlin", 1, 0.0),
        ("2026-11-23T00:00:00+00:00", 3, 4.0),
        ("2026-12-31 00:00:00 UTC", 41, 8.0),
        ("", None, 0.0),
        ("yesterday", None, 0.0),
    ],
)
def test_days_late_cost_a_share_of_the_points(timestamp: str, days: int | None, penalty: float) -> None:
    deadline = lateness.deadline(DUE, free_days=1, percent=25.0)
    assert deadline.lateness(outcome("ada", 8.0, timestamp)) == (days, penalty)


@given(days=st.integers(-3, 30), free=st.integers(0, 5), percent=st.floats(0, 100), score=st.floats(0, 100))
def test_a_penalty_never_takes_more_than_was_earned(days: int, free: int, percent: float, score: float) -> None:
    deadline = Deadline(parse_time(DUE), free, percent)
    late = deadline.lateness(outcome("ada", score, str(parse_time(DUE) + dt.timedelta(days=days))))
    assert late.days == max(0, days)
    assert -1e-6 <= late.penalty <= score + 1e-6
    assert (late.penalty == 0) or days > free


def test_a_day_is_over_at_its_end() -> None:
    due = lateness.deadline("2026-11-20", 0, 10).due
    assert due is not None
    assert (due.hour, due.minute, due.tzinfo is None) == (23, 59, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("soon", 0, 0.0), "is not a date. Try '2026-11-20 23:59'"),
        (("2026-11-20 23:59 Mars/Olympus", 0, 0.0), "is not a date"),
        ((None, 2, 0.0), "need --due"),
        ((None, 0, 10.0), "need --due"),
    ],
)
def test_a_wrong_deadline_has_a_sentence(options: tuple[str | None, int, float], sentence: str) -> None:
    with pytest.raises(FakeGpuError, match=re.escape(sentence)):
        lateness.deadline(*options)
