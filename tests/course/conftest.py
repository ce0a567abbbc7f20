"""Two GPUs, and what an expectation says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab import expect
from fakegpu_lab.course.lessons import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

    from tests.course.quick_course import Course


@pytest.fixture
def gpus() -> Iterator[None]:
    lab.enable("a100:2")
    yield
    lab.disable()


@pytest.fixture
def shell(
    request: pytest.FixtureRequest, ipython: InteractiveShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """IPython with a GPU, in the folder of the lesson that the test's module has as `LESSON`."""
    folder = tmp_path / "01-one"
    folder.mkdir()
    (folder / "lesson.yaml").write_text(request.module.LESSON)
    monkeypatch.chdir(folder)
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    before = set(ipython.user_ns)
    ipython.run_line_magic("load_ext", "fakegpu_lab")
    ipython.run_cell("import torch\n%fakegpu a100\n%lesson 01-one")
    yield ipython
    ipython.run_line_magic("unload_ext", "fakegpu_lab")
    for name in set(ipython.user_ns) - before:
        del ipython.user_ns[name]
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
