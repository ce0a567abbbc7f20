"""Progress: kept, never lost, in the right folder."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.course.checks.record import CheckRecord, PartRecord
from fakegpu_lab.course.lessons import pages, progress
from fakegpu_lab.course.lessons.classroom import Classroom
from fakegpu_lab.course.lessons.lesson import Exercise, Lesson
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

LESSON = Lesson(
    name="01-one", title="One", goal="g", minutes=1, points=3,
    exercises=(Exercise(id="a", title="A", points=2, hints=("x", "y", "z")), Exercise(id="b", title="B")),
)  # fmt: skip


@pytest.fixture(autouse=True)
def saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)


def came(exercise: str, score: float, *, met: bool) -> CheckRecord:
    return CheckRecord(
        exercise=exercise, score=score, points=2, parts=(PartRecord(what="w", met=met, points=2, earned=score),)
    )


def test_the_best_stays_and_tries_are_counted(tmp_path: Path) -> None:
    path = tmp_path / progress.FILE
    progress.checked(path, LESSON, came("a", 0.5, met=False))
    progress.checked(path, LESSON, came("a", 2.0, met=True))
    progress.checked(path, LESSON, came("a", 0.5, met=False))  # once more, for its own sake
    progress.checked(path, LESSON, CheckRecord(exercise="a", score=0, points=2, unsolved=True))
    kept = json.loads(path.read_text())["lessons"]["01-one"]
    assert list(kept["exercises"]) == ["a", "b"]
    expected = {"title": "A", "points": 2.0, "best": 2.0, "attempts": 2, "hints": 0, "solved": True}
    assert kept["exercises"]["a"] == expected
    read = progress.read(path).lessons["01-one"]
    assert (read.earned, read.solved, read.points) == (2.0, 1, 3.0)
    assert [one.name for one in tmp_path.iterdir()] == [progress.FILE]


def test_two_notebooks_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / progress.FILE
    todo = [
        threading.Thread(target=progress.checked, args=(path, LESSON, came("ab"[n % 2], 1, met=False)))
        for n in range(12)
    ]
    for thread in todo:
        thread.start()
    for thread in todo:
        thread.join()
    assert sum(one.attempts for one in progress.read(path).lessons["01-one"].exercises.values()) == 12


def test_a_broken_file_is_put_aside_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / progress.FILE
    path.write_text("{ not json")
    assert progress.read(path) == progress.Progress()
    progress.checked(path, LESSON, came("a", 1.0, met=False))
    assert path.with_suffix(".broken.json").read_text() == "{ not json"
    assert progress.read(path).lessons["01-one"].exercises["a"].best == 1.0


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "01-one").mkdir()
    assert progress.path_for("01-one", tmp_path / "01-one") == tmp_path / progress.FILE
    assert progress.path_for("01-one", tmp_path) == tmp_path / progress.FILE
    monkeypatch.setenv(progress.VARIABLE, "off")
    assert progress.path_for("01-one", tmp_path) is None
    monkeypatch.delenv(progress.VARIABLE)
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    assert progress.path_for("01-one", tmp_path) is None


def test_hints_come_one_at_a_time_and_are_noted_across_restarts(tmp_path: Path) -> None:
    room = Classroom(LESSON, tmp_path)
    assert room.hint("a").startswith("**Hint 1.** x")
    again = Classroom(LESSON, tmp_path)
    again.exercise("a")
    assert "**Hint 2.** y" in again.hint()
    last = again.hint()
    assert "**Hint 3.** z" in last
    assert "the last hint" in last
    assert again.hint() == last
    assert progress.hints_seen(tmp_path / progress.FILE, "01-one", "a") == 3
    assert "has no hints" in again.hint("b")
    with pytest.raises(FakeGpuError, match="it has a, b"):
        again.hint("c")
    with pytest.raises(FakeGpuError, match="belong to a lesson"):
        Classroom().hint("a")


def test_the_summary_shows_all_that_was_done(tmp_path: Path) -> None:
    path = tmp_path / progress.FILE
    assert "Nothing done yet" in repr(pages.Summary(progress.read(path)))
    progress.checked(path, LESSON, came("a", 2.0, met=True))
    shown = pages.Summary(progress.read(path))
    assert "01-one One: 2 of 3 points, 1 of 2 exercises solved" in repr(shown)
    assert "✓ A: 2 of 2 (1 try)" in repr(shown)
    assert "1 exercise solved" in shown.document()
    assert shown._repr_html_() in shown.document()
    assert "1 solved so far" in repr(pages.Welcome(LESSON, progress.read(path)))
