"""A lesson's magics, in IPython without a notebook."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.course.checks.result import Result
from fakegpu_lab.course.lessons import progress
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code import frames

if TYPE_CHECKING:
    from pathlib import Path

    from IPython.core.interactiveshell import InteractiveShell

LESSON = """title: One
goal: g
minutes: 1
points: 3
exercises:
- {id: first-move, title: First move, points: 3, hints: [go, further]}
"""


CHECK = '%%check first-move\nexpect.on_device(y, "cuda:0")\nexpect.transfers(h2d=1, points=2)'


def check(shell: InteractiveShell) -> Result:
    result = shell.run_cell(CHECK).result
    assert isinstance(result, Result)
    return result


def test_a_solution_is_recorded_and_checked(shell: InteractiveShell, tmp_path: Path) -> None:
    assert shell.run_cell('%%exercise first-move\nx = torch.ones(2)\ny = x.to("cuda")\ny.shape').result == (2,)
    assert check(shell) == 3.0
    kept = progress.read(tmp_path / progress.FILE).lessons["01-one"].exercises["first-move"]
    assert (kept.best, kept.solved, kept.attempts) == (3.0, True, 1)


def test_the_line_is_the_notebooks(shell: InteractiveShell) -> None:
    shell.run_cell(
        "%%exercise first-move\nx = torch.ones(2)\nfor _ in range(3):\n    y = x.to('cuda')", store_history=True
    )
    first, second = check(shell).record.parts
    assert first.met
    assert second.line.endswith("line 4")
    assert second.code == "y = x.to('cuda')"


@pytest.mark.parametrize("body", ["raise NotImplementedError()", "y = ...", "def f():\n    raise NotImplementedError"])
def test_what_is_not_written_stops_kindly(
    shell: InteractiveShell, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = shell.run_cell(f"%%exercise first-move\n{body}")
    assert not ran.success, "“Run all” stops here"
    said = capsys.readouterr()
    assert "“First move” is yours to solve" in said.out
    assert "Traceback" not in said.out + said.err
    assert said.err == ""
    if "def" not in body:
        assert check(shell).record.unsolved
    assert check(shell) == 0.0


def test_an_error_of_the_solutions_is_its_own(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    ran = shell.run_cell("%%exercise first-move\ny = 1 / 0")
    assert isinstance(ran.error_in_exec, ZeroDivisionError)
    result = check(shell)
    assert result == 0.0
    assert "ZeroDivisionError" in result.record.note


@pytest.mark.parametrize(("cell", "told"), [
    ('y = x.to("cuda"', "SyntaxError: '(' was never closed (line 2: `y = x.to(\"cuda\"`)"),
    ("y = 1\n  z = 2", "IndentationError: unexpected indent (line 3: `z = 2`)"),
    ("if x:\n    y = 1\n  z = 2",
     "IndentationError: unindent does not match any outer indentation level (line 4: `z = 2`)"),
])  # fmt: skip
def test_a_cell_that_is_no_python_says_so_and_nothing_else(shell: InteractiveShell, cell: str, told: str) -> None:
    shell.run_cell('x = torch.ones(2)\ny = x.to("cuda")')  # what another cell made is not judged instead
    shell.run_cell(f"%%exercise first-move\n{cell}")
    record = check(shell).record
    assert (record.score, record.parts, record.passed) == (0.0, (), False)
    assert record.note == (
        f"The cell above ended with an error: {told}. Nothing in that cell ran: correct the line, run the cell, "
        "then this one."
    )


def test_a_name_of_an_earlier_attempt_is_gone(shell: InteractiveShell) -> None:
    shell.run_cell("x = torch.ones(2)")
    shell.run_cell('%%exercise first-move\ny = x.to("cuda")')
    assert check(shell) == 3.0
    shell.run_cell('%%exercise first-move\nx = x.to("nowhere")\ny = x')
    assert check(shell) == 0.0, "y is still that of the first attempt"
    assert "x" in shell.user_ns, "which the exercise did not make"


def test_hints_and_progress(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shell.run_cell("%hint first-move")
    assert "Hint 1.** go" in capsys.readouterr().out
    shell.run_cell("%hint\n%progress --save mine.html")
    assert (tmp_path / "01-one" / "mine.html").read_text().startswith("<!DOCTYPE html>")
    assert "has no exercise" in str(shell.run_cell("%hint other").error_in_exec)


def test_an_unknown_exercise_or_lesson_is_told(shell: InteractiveShell) -> None:
    assert "has no exercise 'other'" in str(shell.run_cell("%%check other\nexpect.equal(1, 1)").error_in_exec)
    assert "There is no lesson '99'" in str(shell.run_cell("%lesson 99").error_in_exec)


WRONG = {
    "in the cell": ("x = torch.ones(2, device='cuda')\nx + torch.ones(2).cpu()", ["----> 3 x +"]),
    "in a function": ("def f(x):\n    return x.numpy()\nf(torch.ones(2, device='cuda'))", ["----> 4 f(", "----> 3 "]),
    "out of memory": ("torch.empty(1 << 40, device='cuda')", ["----> 2 torch.empty", "Tried to allocate 4096.00 GiB"]),
    "no Python": ("x = = 1", ["SyntaxError: invalid syntax", "x = = 1"]),
}


@pytest.mark.parametrize("program", WRONG)
def test_tracebacks_end_at_the_students_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], program: str
) -> None:
    code, told = WRONG[program]
    result = shell.run_cell(f"%%exercise first-move\n{code}")
    assert result.error_in_exec is not None
    out, err = capsys.readouterr()
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out + err)
    assert [words for words in told if words not in shown] == []
    assert "run_cell_magic" not in shown
    assert f"fakegpu_lab{os.sep}" not in shown


def test_an_error_of_ours_keeps_its_frames() -> None:
    with pytest.raises(FakeGpuError) as raised:
        parse_spec("no-such-card")
    error = raised.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next  # without this function's
    frames.trim(error)
    assert error.__traceback__ is not None


def test_a_prediction_is_kept_with_the_progress(shell: InteractiveShell, tmp_path: Path) -> None:
    prediction = shell.run_cell("%predict two-devices").result
    assert "write down what you expect" in repr(prediction)
    text, button, said = prediction._widget().children
    button.click()
    assert said.value == "Write what you expect first."
    text.value = "x stays on the CPU"
    button.click()
    assert said.value == "Saved. Run the next cell."
    kept = progress.read(tmp_path / progress.FILE).lessons["01-one"]
    assert kept.predictions == {"two-devices": "x stays on the CPU"}
    again, _, _ = shell.run_cell("%predict two-devices").result._widget().children
    assert again.value == "x stays on the CPU"
    check(shell)  # a check afterwards does not lose it
    assert progress.read(tmp_path / progress.FILE).lessons["01-one"].predictions


def test_a_prediction_needs_no_lesson(shell: InteractiveShell) -> None:
    shell.run_cell("%unload_ext fakegpu_lab\n%load_ext fakegpu_lab")
    text, button, said = shell.run_cell("%predict anything").result._widget().children
    text.value = "it works"
    button.click()
    assert said.value == "Noted. Run the next cell."
