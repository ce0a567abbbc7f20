"""Two GPUs, and what an expectation says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab import expect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.course.quick_course import Course


@pytest.fixture
def gpus() -> Iterator[None]:
    lab.enable("a100:2")
    yield
    lab.disable()


@pytest.fixture
def course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course of two students, graded in no time."""
    pytest.importorskip("nbgrader")
    from fakegpu_lab.course.grade import whole_class
    from tests.course import quick_course

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(whole_class, "grade", quick_course.outcome_of)
    monkeypatch.setattr("nbgrader.api.get_alembic_version", lambda: "any")  # a process, for each new gradebook
    return quick_course.Course(tmp_path)


def told(expectation: Callable[[], Any]) -> str:
    """What is said where an expectation is not met."""
    with pytest.raises(expect.Unmet) as error:
        expectation()
    return str(error.value)
