"""What a student shares with the instructor in the room: asked for, without code, and gone when it is ended."""

from __future__ import annotations

import json
import re
import stat
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from fakegpu_lab.cli.commands import cli
from fakegpu_lab.course import class_view
from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.lessons import progress, sharing
from fakegpu_lab.course.lessons.classroom import Classroom
from fakegpu_lab.course.lessons.lesson import Exercise, Lesson
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

LESSON = Lesson(
    name="01-one", title="One", goal="g", minutes=1, points=3,
    exercises=(Exercise(id="a", title="First <move>", points=2), Exercise(id="b", title="B")),
)  # fmt: skip
SECRET = "model.to('cuda')  # my own code"


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)


def result(*, met: bool, exercise: str = "a") -> CheckRecord:
    part = PartRecord(
        what="y is on cuda:0",
        met=met,
        points=2,
        earned=2.0 * met,
        found=SECRET,
        code=SECRET,
        line=SECRET,
        message=SECRET,
    )
    hidden = part.model_copy(update={"what": "a hidden sentence", "hidden": True})
    return CheckRecord(exercise=exercise, score=2.0 * met, points=2, parts=(part, hidden), note=SECRET)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "class").mkdir()
    return tmp_path / "home"


def room(home: Path) -> Classroom:
    return Classroom(LESSON, home)


def files(home: Path) -> list[Path]:
    return sorted((home.parent / "class").iterdir())


def test_nothing_leaves_the_folder_unasked(home: Path) -> None:
    room(home).checked(result(met=False))
    assert files(home) == []
    assert sharing.state(home).startswith("Nothing is shared.")


def test_a_check_tells_how_far_a_student_is_and_no_code(home: Path) -> None:
    told = sharing.begin(str(home.parent / "class"), home)
    assert "Your code is not shared" in told
    assert sharing.state(home) == f"Shared with {home.parent / 'class'}."
    for _ in range(3):
        room(home).checked(result(met=False))
    room(home).predict("two", SECRET)
    (file,) = files(home)
    text = file.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "hidden" not in text
    assert re.fullmatch(r".+-[0-9a-f]{16}\.class\.json", file.name), "nobody can guess it"
    assert json.loads(text)["lessons"]["01-one"]["a"] == {
        "title": "First <move>", "points": 2.0, "best": 0.0, "attempts": 3, "hints": 0, "solved": False,
        "unmet": {"y is on cuda:0": 3},
    }  # fmt: skip
    assert stat.S_IMODE(file.stat().st_mode) & 0o022 == 0


def test_ending_it_deletes_what_was_shared(home: Path) -> None:
    sharing.begin(str(home.parent / "class"), home)
    room(home).checked(result(met=True))
    assert sharing.stop(home) == "Nothing more is shared, and what was shared is deleted."
    assert files(home) == []
    room(home).checked(result(met=True))
    assert files(home) == []
    assert sharing.stop(home) == "Nothing was shared."


def test_beginning_again_leaves_one_file(home: Path) -> None:
    for _ in range(2):
        sharing.begin(str(home.parent / "class"), home)
    assert len(files(home)) == 1


def test_a_folder_that_goes_away_stops_nobody_s_work(home: Path) -> None:
    sharing.begin(str(home.parent / "class"), home)
    files(home)[0].unlink()
    (home.parent / "class").rmdir()
    assert room(home).checked(result(met=True)) == ""
    assert progress.read(home / progress.FILE).lessons["01-one"].exercises["a"].solved


def test_a_folder_that_is_not_there_has_a_sentence(home: Path) -> None:
    with pytest.raises(FakeGpuError, match=r"Nothing is shared: .*nowhere.* cannot be written"):
        sharing.begin(str(home.parent / "nowhere"), home)
    assert sharing.state(home).startswith("Nothing is shared.")


def test_the_instructor_sees_who_needs_help(home: Path) -> None:
    folder = home.parent / "class"
    for name, results in (("ada", [True]), ("ben", [False] * 4), ("cy", [False])):
        place = home.parent / name
        place.mkdir()
        sharing.begin(str(folder), place)
        for met in results:
            room(place).checked(result(met=met))
        (new,) = [file for file in files(home) if not file.name.startswith(("ada", "ben", "cy"))]
        new.rename(new.with_name(f"{name}-{'0' * 16}{sharing.SUFFIX}"))
    (folder / f"empty-{'1' * 16}{sharing.SUFFIX}").write_text("{}")
    (folder / f"broken-{'2' * 16}{sharing.SUFFIX}").write_text("{")
    view = class_view.look(folder)
    assert [(row.student, row.stuck, row.attempts, row.solved) for row in view.students] == [
        ("ben", True, 4, "0 of 2"),
        ("ada", False, 1, "1 of 2"),
        ("cy", False, 1, "0 of 2"),
    ]
    assert view.exercises == [("01-one", "First <move>", 3, 1, 1, "2 × y is on cuda:0")]
    page = class_view.page(view, "x<y", 5)
    assert "First &lt;move&gt;" in page
    assert "<move>" not in page
    assert 'content="5"' in page
    written = home.parent / "class.html"
    told = CliRunner().invoke(cli, ["class", str(folder), "--once", "--page", str(written)], env={"COLUMNS": "200"})
    assert told.exit_code == 0, told.output
    assert "● ben" in told.output
    assert "● ben" not in written.read_text(encoding="utf-8"), "the page marks the row by its style"
    assert "<tr class=stuck><td>ben</td>" in written.read_text(encoding="utf-8")


def test_a_class_that_has_no_folder_has_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FakeGpuError, match="Make one that everyone may write to"):
        cli.main(["class", str(tmp_path / "nowhere"), "--once"], standalone_mode=False)
