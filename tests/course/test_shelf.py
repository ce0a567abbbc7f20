"""A student's copies of the lessons: there when asked for, never written over. And what front ends ask for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fakegpu_lab.course.lessons import lesson, lesson_library, progress
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.sidebar import answers

YAML = """
title: One
goal: Count.
minutes: 5
points: 3
exercises:
- {id: a, title: First, points: 2, hints: [look, "look `twice`"]}
- {id: b, title: Second}
"""


@pytest.fixture(autouse=True)
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    folder = tmp_path / "shipped"
    for name in ("01-one", "02-two"):
        (folder / name).mkdir(parents=True)
        (folder / name / "lesson.yaml").write_text(YAML)
        (folder / name / f"{name}.ipynb").write_text('{"cells": []}')
        (folder / name / "lesson.yaml").chmod(0o444)
    monkeypatch.setattr(lesson, "shipped", lambda: folder)
    monkeypatch.setattr(answers, "_room", lambda: None)  # other tests open lessons in this process
    monkeypatch.chdir(tmp_path)
    return folder


def ask(**question: object) -> dict[str, Any]:
    answered: dict[str, Any] = json.loads(answers.answer(json.dumps(question)))
    assert answered.pop("version") == 1
    return answered


def told(**question: object) -> Any:
    answered = ask(**question)
    assert answered["ok"], answered
    return answered["told"]


def test_a_lesson_is_copied_once_and_never_written_over() -> None:
    listed = told(ask="lessons", folder="mine")["lessons"]
    assert [(one["name"], one["notebook"]) for one in listed] == [
        ("01-one", ""),
        ("02-two", ""),
    ]
    path = told(ask="fetch", name="01-one", folder="mine")["notebook"]
    assert path == "01-one/01-one.ipynb"
    mine = Path("mine") / path
    mine.write_text("mine")
    (Path("mine") / "01-one" / "notes.txt").write_text("mine, too")
    assert told(ask="fetch", name="01-one", folder="mine", newer=True)["notebook"] == path
    lesson_library.fetch_all("mine")
    assert mine.read_text() == "mine"
    assert sorted(path.name for path in Path("mine").iterdir()) == [lesson_library.LIST, "01-one", "02-two"]


def test_lessons_are_looked_for_where_they_are() -> None:
    assert told(ask="lessons")["folder"] == "fakegpu-lessons"
    lesson_library.fetch("02-two", ".")
    here = told(ask="lessons")
    assert here["folder"] == "."
    assert [one["notebook"] for one in here["lessons"]] == ["", "02-two/02-two.ipynb"]


def test_a_newer_edition_is_offered_and_put_beside(shipped: Path) -> None:
    lesson_library.fetch_all("mine")
    Path("mine/01-one/01-one.ipynb").write_text("mine")
    assert not any(one.newer for one in lesson_library.listing("mine"))
    (shipped / "01-one" / "01-one.ipynb").write_text('{"cells": [1]}')
    assert [one.newer for one in lesson_library.listing("mine")] == [True, False]
    assert lesson_library.fetch("01-one", "mine") == "01-one/01-one.ipynb", "it is offered, not pushed"
    assert lesson_library.fetch("01-one", "mine", newer=True) == "01-one.2/01-one.ipynb"
    assert Path("mine/01-one/01-one.ipynb").read_text() == "mine"
    listed = lesson_library.listing("mine")[0]
    assert (listed.notebook, listed.newer) == ("01-one.2/01-one.ipynb", False)


def test_a_later_edition_keeps_the_same_progress() -> None:
    lesson_library.fetch_all("mine")
    shutil.copytree("mine/01-one", "mine/01-one.2")
    first, second = Path("mine/01-one"), Path("mine/01-one.2")
    assert progress.path_for("01-one", first) == progress.path_for("01-one", second)
    assert lesson.find("01-one", second).name == "01-one"


def test_copies_made_without_a_list_are_told_by_what_students_do_not_write_to(shipped: Path) -> None:
    shutil.copytree(shipped / "01-one", "mine/01-one")
    Path("mine/01-one/01-one.ipynb").write_text("mine")
    assert not lesson_library.listing("mine")[0].newer
    (shipped / "01-one" / "lesson.yaml").chmod(0o644)
    (shipped / "01-one" / "lesson.yaml").write_text(YAML.replace("minutes: 5", "minutes: 6"))
    assert lesson_library.listing("mine")[0].newer


def test_starting_over_keeps_every_backup() -> None:
    assert ask(ask="start over", name="01-one", folder="mine")["why"].startswith("The lesson 01-one was never started")
    lesson_library.fetch("01-one", "mine")
    for number in (1, 2):
        Path("mine/01-one/01-one.ipynb").write_text(f"mine {number}")
        backup = told(ask="start over", name="01-one", folder="mine")["backup"]
        assert backup == f"01-one/01-one.backup-{number}.ipynb"
        assert (Path("mine") / backup).read_text() == f"mine {number}"
        assert Path("mine/01-one/01-one.ipynb").read_text() == '{"cells": []}'
    assert Path("mine/01-one/01-one.backup-1.ipynb").read_text() == "mine 1"


def test_a_copy_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(FakeGpuError, match="cannot be copied to mine: No space left on device"):
        lesson_library.fetch("01-one", "mine")
    assert list(Path("mine").iterdir()) == []


def test_a_notebook_s_exercises_with_hints_that_are_noted() -> None:
    folder = Path("mine/01-one")
    lesson_library.fetch("01-one", "mine")
    about = told(ask="notebook", name="01-one", folder=str(folder))
    assert (about["title"], about["loaded"]) == ("One", False)
    first = {"id": "a", "title": "First", "points": 2.0, "hints": 2, "seen": 0, "best": 0.0, "attempts": 0}
    assert about["exercises"][0] == {**first, "solved": False}
    question = {"ask": "hint", "name": "01-one", "exercise": "a", "folder": str(folder)}
    assert told(**question) == {"hints": ["look"], "left": 1}
    assert told(**question) == {"hints": ["look", "look `twice`"], "left": 0}
    assert told(ask="notebook", name="01-one", folder=str(folder))["exercises"][0]["seen"] == 2
    kept = json.loads(Path("mine/fakegpu-progress.json").read_text())
    assert kept["lessons"]["01-one"]["exercises"]["a"]["hints"] == 2


def test_profiles_can_be_chosen_from() -> None:
    found = {one["id"]: one for one in told(ask="profiles")}
    assert found["a100"]["cards"] == 1
    assert found["dgx-a100"]["memory"] == 8 * found["a100"]["memory"]


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ('{"ask": "fetch", "name": "09-none"}', "There is no lesson '09-none'. Available: 01-one, 02-two."),
        ('{"ask": "fetch", "name": "../01-one"}', "There is no lesson '../01-one'. Available: 01-one, 02-two."),
        ('{"ask": "tea"}', "The kernel does not understand this request"),
        ('{"ask": "hint", "name": 3}', "The kernel does not understand this request"),
        ("[", "The kernel does not understand this request"),
    ],
)
def test_what_cannot_be_answered_is_told(question: str, why: str) -> None:
    answered = json.loads(answers.answer(question))
    assert not answered["ok"]
    assert answered["why"].startswith(why)
