"""A lesson, an exercise or a cell that needs a library is skipped where that is missing, and says so."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from fakegpu_lab.course.authoring import check
from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.lessons import extras, lesson
from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

LESSON = """title: One
goal: g
minutes: 1
points: 3
exercises:
- {id: with-threads, title: With threads, points: 1}
- {id: with-blocks, title: With blocks, points: 2, needs: [triton]}
"""


@pytest.fixture(autouse=True)
def bare_computer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither numba nor Triton is there."""
    monkeypatch.setattr(extras, "_MODULES", {"numba": ("not_installed_a",), "triton": ("not_installed_b",)})
    monkeypatch.setattr(extras, "_older", lambda: "")


def test_an_exercise_that_cannot_run_here_is_skipped(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shell.run_cell("%%exercise with-blocks\ny = 1").success
    said = capsys.readouterr()
    assert "“With blocks” is skipped: Triton is not installed here" in said.out
    assert "It counts when your notebook is graded on a computer that has it." in said.out
    assert not said.err
    assert "y" not in shell.user_ns
    result: Any = shell.run_cell("%%check with-blocks\nexpect.equal(y, 1, points=2)").result
    assert isinstance(result, Result)
    assert result == 0.0
    assert "is skipped: Triton is not installed here" in result.record.note
    assert shell.run_cell("%%exercise with-threads\ny = 2").success
    assert shell.user_ns["y"] == 2


def test_a_cell_says_what_it_needs(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run_cell("%%needs numba triton\ny = 1").success
    assert "This cell is skipped: numba and Triton are not installed here" in capsys.readouterr().out
    assert "y" not in shell.user_ns


def test_a_cell_runs_where_nothing_is_missing(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_MODULES", {"triton": ("json",)})
    assert shell.run_cell("%%needs triton\ny = 3\ny + 1").result == 4


def test_a_triton_that_is_too_old_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(extras, "_MODULES", {"triton": ("json",), "numba": ("not_installed_a",)})
    monkeypatch.setattr(extras.metadata, "version", lambda name: "3.6.0")
    assert extras.missing(["triton"]) == ["triton"]
    too_old = "Triton 3.6.0 is too old: simulated GPUs need 3.9 or newer. Run: pip install 'triton>=3.9', then restart"
    assert extras.sentence(["triton"]).startswith(too_old)
    assert extras.sentence(["numba", "triton"]).startswith("numba is not installed here: pip install")
    assert too_old in extras.sentence(["numba", "triton"])
    monkeypatch.setattr(extras.metadata, "version", lambda name: "3.9.0")
    assert extras.missing(["triton"]) == []


def test_a_lesson_that_cannot_run_here_stops_its_first_cell(
    shell: InteractiveShell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "01-one" / "lesson.yaml").write_text(LESSON.replace("points: 3\n", "points: 3\nneeds: [numba]\n", 1))
    assert not shell.run_cell("%lesson 01-one\ny = 1").success
    said = capsys.readouterr()
    assert "This lesson is skipped: numba is not installed here: pip install 'fakegpu-lab[numba]'" in said.out
    assert "Traceback" not in said.out + said.err
    assert "y" not in shell.user_ns


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("Windows", "in WSL, or on a computer with Linux"),
        ("Darwin", "on a computer with Linux"),
        ("Linux", "pip install"),
    ],
)
def test_triton_is_for_linux(system: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.platform, "system", lambda: system)
    assert said in extras.sentence(["triton"])


def test_nothing_is_graded_where_a_library_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise everyone would have 0 points in what could not run."""
    monkeypatch.setattr(extras, "_MODULES", {"numba": ("json",), "triton": ("not_installed_b",)})
    folder = tmp_path / "10-some"
    folder.mkdir()
    (folder / "lesson.yaml").write_text(LESSON)
    with pytest.raises(FakeGpuError, match="The lesson 10-some cannot run here, so nothing was graded: Triton is not"):
        check.check(folder, print)
    assert lesson.load(folder).all_needs == ["triton"]


def test_grading_stops_before_it_begins(tmp_path: Path) -> None:
    if not extras.missing(["numba", "triton"]):
        pytest.skip("both are installed")
    command = [sys.executable, "-m", "fakegpu_lab", "grade", "--lesson", "10", str(tmp_path), "--out", "grades.csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "The lesson 10-kernels cannot run here, so nothing was graded:" in done.stdout + done.stderr
    assert not (tmp_path / "grades.csv").exists()


def test_a_kernel_that_failed_does_not_cost_the_next_exercise(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    device_asserts.illegal_access(current.device(), "Thread 0 writes x[9].")
    with pytest.raises(torch.AcceleratorError):
        torch.cuda.synchronize()
    capsys.readouterr()
    assert shell.run_cell("%%exercise with-threads\ny = torch.ones(2, device='cuda').sum().item()").success
    assert shell.user_ns["y"] == 2.0
    assert "its GPU could not be used anymore. It was reset, and is empty." in capsys.readouterr().out
