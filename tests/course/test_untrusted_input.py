"""What students name, write and hand in reaches spreadsheets, pages, terminals and the grader: it commands none."""

from __future__ import annotations

import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.cli.plain_console import PlainConsole
from fakegpu_lab.course import class_view
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.grade import submissions
from fakegpu_lab.course.grade.outcome import CellOutcome, CheckOutcome, Outcome
from fakegpu_lab.course.grade.outputs import lateness, pages, platforms, tables
from fakegpu_lab.course.grade.sandbox import sealed_channel
from fakegpu_lab.course.lessons import lesson as yaml
from fakegpu_lab.course.lessons import sharing
from fakegpu_lab.formatting.printable import encodable, printable
from tests.course.test_gradebooks import CANVAS, lesson, outcome, written


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "  '=1"),
        ("ada;=1+1", "ada;'=1+1"),
        ("a\n=1", "a\n'=1"),
        ("a; -1", "a; '-1"),
        ("a\t=1", "a\t'=1"),
        ("\uff1d1", "'\uff1d1"),
        ("Ada", "Ada"),
        ("a=1, b-2; c", "a=1, b-2; c"),
        ("", ""),
        ("\x1b[2J", "\\x1b[2J"),
    ],
)
def test_no_part_of_a_cell_is_a_formula(text: str, safe: str) -> None:
    assert tables.cell(text) == safe


def test_a_student_s_name_is_no_formula_in_any_table(tmp_path: Path) -> None:
    name = "=HYPERLINK(0);@x"
    tables.write(tmp_path / "grades.csv", lesson(), [outcome(name, 1.0)])
    assert "'=HYPERLINK(0);'@x" in (tmp_path / "grades.csv").read_text()
    table, _ = written(tmp_path, "canvas", CANVAS.replace('"Lovelace, Ada"', name), outcome("ada", 7.5))
    assert table[2][0] == "'=HYPERLINK(0);'@x"
    worksheet = f"Identifier,Full name,Grade,Last modified (grade),Feedback comments\nParticipant 1,{name},,-,\n"
    table, _ = written(tmp_path, "moodle", worksheet, outcome("x_1", 7.5))
    assert table[1][1] == "'=HYPERLINK(0);'@x"


def test_a_terminal_shows_control_characters_and_obeys_none(capsys: pytest.CaptureFixture[str]) -> None:
    PlainConsole().print("a\x1b]52;c;eA==\x07b [red]c\nd\te \u202eabc")
    assert capsys.readouterr().out.split() == ["a\\x1b]52;c;eA==\\x07b", "[red]c", "d", "e", "\\u202eabc"]
    assert printable("\ud800\x9b1m") == "?\\x9b1m"


def test_half_a_character_becomes_one_that_can_be_written() -> None:
    assert encodable({"a\udc80": ["\ud800", 1, None, "ü"]}) == {"a?": ["?", 1, None, "ü"]}
    key = b"k" * 32
    line = sealed_channel.seal(key, b"up", 0, {"outputs": ["\ud800", "😀"]})
    assert sealed_channel.unseal(key, b"up", 0, line) == {"outputs": ["?", "😀"]}


@pytest.mark.parametrize("name", ["ada102_101_90210", "102_101_90210", "ada 102_101", "ada_101_102"])
def test_digits_in_a_student_s_own_name_find_nobody_else(tmp_path: Path, name: str) -> None:
    table, told = written(tmp_path, "canvas", CANVAS, outcome(name, 7.5))
    assert told.unknown == []
    assert [row[0] for row in table[2:]] == ["Lovelace, Ada"]
    assert platforms.Roster("canvas", tmp_path / "roster.csv").find("ada 102", ("ID",)) == []
    assert platforms.Roster("canvas", tmp_path / "roster.csv").find("test_555_102", ("ID",)) == []


@pytest.mark.parametrize("timestamp", ["0001-01-01", "0001-01-01 00:00 Pacific/Auckland", "9999-12-31 23:59", "\x00"])
def test_a_time_that_no_clock_has_ends_nothing(timestamp: str, tmp_path: Path) -> None:
    deadline = lateness.deadline("2026-11-20", 0, 10)
    deadline.lateness(outcome("ada", 5.0, timestamp))
    tables.write(tmp_path / "grades.csv", lesson(), [outcome("ada", 1.0, timestamp)], deadline)


def zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return made.getvalue()


NOTEBOOK = b'{"cells": []}'


def test_only_nbgrader_s_own_time_of_a_submission_is_believed(tmp_path: Path) -> None:
    early = b"2020-01-01 00:00:00 UTC"
    inner = zipped({"one.ipynb": NOTEBOOK, "timestamp.txt": early, "one/timestamp.txt": early})
    files = {
        "ada/one/one.ipynb": NOTEBOOK,
        "ada/one/timestamp.txt": early,
        "ben/one.ipynb": NOTEBOOK,
        "ben/timestamp.txt": early,
        "cyd.zip": inner,
        "Dan_7_assignsubmission_file_/one/one.ipynb": NOTEBOOK,
        "Dan_7_assignsubmission_file_/one/timestamp.txt": early,
    }
    for name, content in files.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(content)
    (tmp_path / "all.zip").write_bytes(zipped(files))
    for path in ("in", "all.zip"):
        found = {one.student: one for one in submissions.collect(tmp_path / path, "one", "one")}
        assert {name: bool(one.timestamp) for name, one in found.items()} == {
            "ada": True, "ben": False, "cyd": False, "Dan_7": False,
        }  # fmt: skip
        assert any("is trusted" in note for note in found["ben"].notes)
        assert all(one.notebook == NOTEBOOK and "timestamp.txt" not in one.files for one in found.values())


def test_a_student_s_zip_cannot_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submissions, "LARGEST", 1000)
    monkeypatch.setattr(submissions, "MOST_FILES", 20)
    (tmp_path / "in").mkdir()
    bombs = {
        "ada": {"one.ipynb": NOTEBOOK, **{f"{i}.bin": b"\0" * 900 for i in range(3)}},
        "ben": {"one.ipynb": NOTEBOOK, **{f"{i}.bin": b"" for i in range(30)}},
        "cyd": {"one.ipynb": NOTEBOOK, "0.bin": b"\0" * 900},
    }
    for name, files in bombs.items():
        (tmp_path / "in" / f"{name}.zip").write_bytes(zipped(files))
        (tmp_path / "in" / name).mkdir()
    found = {one.student: one for one in submissions.collect(tmp_path / "in", "one", "one")}
    assert found["cyd"].notebook == NOTEBOOK
    assert [found[name].problem for name in ("ada", "ben")] == ["it contains no notebook"] * 2


def test_a_name_in_a_zip_is_no_drive_of_windows(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped({"ada/one/one.ipynb": NOTEBOOK, "ada/one/C:/evil.py": b"", "b:c": b""}))
    (ada,) = submissions.collect(tmp_path / "a.zip", "one", "one")
    assert (ada.student, ada.files) == ("ada", {})


def shared(**changes: Any) -> str:
    told = {"lesson": "one", "exercise": "a", "when": 1.0, "lessons": {"one": {"a": {"title": "A", "attempts": 1}}}}
    return json.dumps(told | changes)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes and links in a folder")
def test_what_lies_in_the_class_s_folder_cannot_stop_the_page(tmp_path: Path) -> None:
    (tmp_path / "ada-1.class.json").write_text(shared(exercise="a\x1b[2J"))
    (tmp_path / "secret.json").write_text(shared(exercise="mine"))
    os.mkfifo(tmp_path / "ben-1.class.json")
    (tmp_path / "cyd-1.class.json").symlink_to(tmp_path / "secret.json")
    (tmp_path / "dan-1.class.json").write_text('{"lesson": "one", "when": NaN}')
    (tmp_path / "eve-1.class.json").write_text('{"lesson": "one", "when": 1e999}')
    (tmp_path / "fay-1.class.json").write_text(shared(exercise="x" * sharing.LARGEST))
    (tmp_path / "gil-1.class.json").mkdir()
    (tmp_path / "hal-1.class.json").write_text('{"lesson": ' + "[" * 100_000)
    assert [row.student for row in class_view.look(tmp_path).students] == ["ada"]
    done = CliRunner().invoke(cli, ["class", str(tmp_path), "--once"])
    assert done.exit_code == 0, done.output
    assert "\x1b[2J" not in done.output


def test_sharing_writes_and_deletes_nothing_but_what_it_made(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    (tmp_path / sharing.FILE).write_text(json.dumps({"file": str(mine)}))
    assert sharing.stop(tmp_path) == "Nothing was shared."
    assert mine.read_text() == "mine"


EVIL = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>{{ 7*7 }}`"


def test_nothing_that_a_student_writes_is_html_on_a_page() -> None:
    part = {"what": EVIL, "met": False, "points": 1, "earned": 0, "hidden": False, "found": EVIL, "line": EVIL,
            "code": EVIL, "hint": EVIL, "message": EVIL, "expected": EVIL}  # fmt: skip
    record = {"exercise": "a", "title": EVIL, "score": 0, "points": 1, "note": EVIL, "parts": [part]}
    check = CheckOutcome(
        grade_id="one-check", title=EVIL, points=0, max_points=1, ran=True, wrong=[EVIL], record=record
    )
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": EVIL},
        {"output_type": "error", "ename": EVIL, "evalue": EVIL, "traceback": [EVIL]},
        {"output_type": "display_data", "data": {"text/html": EVIL, "text/plain": EVIL, "image/png": EVIL}},
        {"output_type": "execute_result", "data": {"image/svg+xml": EVIL, "text/plain": EVIL}},
    ]
    cells = [CellOutcome(id=EVIL, kind=kind, source=EVIL, outputs=outputs) for kind in ("student", "locked", "check")]
    made = Outcome(
        student=EVIL, lesson="l", digest="d", timestamp=EVIL, status="crashed", reason=EVIL, checks=[check],
        flags=[EVIL], notes=[EVIL], cells=cells,
    )  # fmt: skip
    for page in (pages.feedback(made), pages.summary(lesson(), [made], [pages.link(Path("a") / EVIL, Path("b.html"))])):
        assert "<script" not in page
        assert "<img src=x" not in page
        assert "{{ 7*7 }}" in page
        assert "default-src 'none'" in page
    assert "/" not in pages.file_name(made)


def test_what_is_flagged_when_an_exercise_is_graded_again_stays_flagged() -> None:
    def made(points: float, *flags: str) -> Outcome:
        checks = [CheckOutcome(grade_id=name, points=points, max_points=3) for name in ("a-check", "b-check")]
        return Outcome(student="s", lesson="l", digest="d", checks=checks, flags=list(flags))

    before = made(1, "a: old", "b-check: gone", "b: kept")
    again = before.with_check("b-check", made(3, "b: attacked", "b-check: new", "used ctypes"))
    assert [check.points for check in again.checks] == [1, 3]
    assert again.flags == ["a: old", "b-check: new", "b: attacked", "b: kept", "used ctypes"]


def test_magics_of_the_course_are_honest() -> None:
    policy = Policy()
    for line in ("%share /srv/class", "%predict mine", "%hint a", "%%kernel\nx = 1", "%%exercise a\n%%kernel a\nx = 1"):
        assert policy.flags(line) == []
    assert policy.flags("%%kernel\neval('1')") == ["line 2 uses eval"]


def test_an_answer_may_choose_the_gpus_that_the_lesson_chooses() -> None:
    policy = Policy(["%fakegpu a100:2", "import fakegpu_lab as lab\nlab.enable('t4')"])
    assert policy.flags("%fakegpu a100:2") == []
    assert policy.flags("%fakegpu h100:2") == ["line 1 chooses the GPUs (%fakegpu h100:2)"]
    assert policy.flags("import fakegpu_lab as lab\nlab.enable('t4')") == []
    assert policy.flags("import fakegpu_lab as lab\nlab.enable('h100')") != []


def test_a_name_that_a_function_changes_is_changed() -> None:
    policy = Policy(["table = 1"], read=["table"])
    changed = ["gives table, which the check reads, another value"]
    assert policy.flags("def f():\n    global table\n    table = 2\nf()") == changed
    assert policy.flags("match [1]:\n    case [table]: pass") == changed
    assert policy.flags("def f():\n    table = 2\nf()") == []


def test_blank_lines_take_no_time() -> None:
    assert Policy().flags("\n" * 90_000) == []


def test_a_lesson_is_found_by_the_beginning_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("03-mine", "01-here"):
        (tmp_path / "a" / "source" / name).mkdir(parents=True)
        (tmp_path / "a" / "source" / name / f"{name}.ipynb").touch()
    (tmp_path / "b" / "source" / "03-theirs").mkdir(parents=True)
    (tmp_path / "b" / "source" / "03-theirs" / "x.ipynb").touch()
    looked: list[Path] = []
    real = yaml._has_notebook
    monkeypatch.setattr(yaml, "_has_notebook", lambda folder: looked.append(folder) or real(folder))
    assert yaml.find_source("03", [tmp_path / "a", tmp_path / "b"]).name == "03-mine"
    assert len(looked) == len(set(looked)), "each folder is looked at once"
