"""Whose code a file is, how a line is named, and where tracebacks end: `user_code.frames`."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
import typing_extensions
from IPython.core import interactiveshell

import fakegpu_lab as lab
from fakegpu_lab.course.flags import tampering
from fakegpu_lab.user_code import frames

PACKAGES = Path(sysconfig.get_path("purelib"))


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        (lab.__file__, frames.OURS),
        (torch.nn.__file__, frames.TORCH),
        (str(PACKAGES / "functorch" / "dim" / "op.py"), frames.TORCH),
        (json.__file__, frames.PYTHON),
        (typing_extensions.__file__, frames.PYTHON),
        ("<frozen runpy>", frames.PYTHON),
        ("<magic-timeit>", frames.PYTHON),
        (interactiveshell.__file__, frames.PLUMBING),
        (str(PACKAGES / "triton" / "runtime" / "jit.py"), frames.LAUNCHER),
        (str(PACKAGES / "numba" / "cuda" / "simulator" / "kernel.py"), frames.LAUNCHER),
        (str(PACKAGES / "transformers" / "trainer.py"), frames.LIBRARY),
        (str(PACKAGES / "single.py"), frames.LIBRARY),
        (__file__, frames.PROGRAM),
        ("train.py", frames.PROGRAM),
        ("<string>", frames.PROGRAM),  # python -c
    ],
)
def test_the_kind_of_a_file(file: str, kind: int) -> None:
    assert frames.kind(file) == kind


def test_a_linked_file_is_of_the_kind_of_its_target(tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(Path(torch.__file__).parent)
    assert frames.kind(str(tmp_path / "linked" / "nn" / "functional.py")) == frames.TORCH


def test_a_line_of_a_cell_and_of_a_file(ipython: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    number = ipython.execution_count
    ipython.run_cell("from fakegpu_lab.user_code import frames\nline = frames.user_line()", store_history=True)
    line = ipython.user_ns["line"]
    assert frames.place(line) == (f"In[{number}], line 2", "line = frames.user_line()")
    assert frames.kind(line.rpartition(":")[0]) == frames.CELL
    assert frames.quoted(line) == f"In[{number}], line 2: line = frames.user_line()"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "train.py").write_text("import torch\n\nx = 1\n")
    assert frames.quoted(f"{tmp_path}/deep/train.py:3") == "deep/train.py:3: x = 1"
    assert frames.quoted("") == "not in your program"


def test_a_timed_line_is_the_cell_that_times_it(ipython: Any) -> None:
    ipython.run_cell("from fakegpu_lab.user_code import frames\nlines = []", store_history=True)
    number = ipython.execution_count
    ipython.run_cell("%timeit -n1 -r1 -q lines.append(frames.user_line())", store_history=True)
    assert frames.place(ipython.user_ns["lines"][-1]).label == f"In[{number}], line 1"


def shown(error: BaseException) -> list[str]:
    return [Path(step.filename).name for step in traceback.extract_tb(error.__traceback__)]


def fails(inner: Any) -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        inner()
    return caught.value


def _in(file: str, source: str, **names: Any) -> Any:
    """A function `call` whose code is said to be in a file."""
    exec(compile(source, file, "exec"), names)
    return names["call"]


def test_a_traceback_ends_at_the_users_line_with_or_without_torchs_frames() -> None:
    def layers() -> Any:
        ours = _in(str(Path(lab.__file__).parent / "deep.py"), "def call(): raise RuntimeError('no')")
        torchs = _in(str(Path(torch.__file__).parent / "deep_torch.py"), "def call(): inner()", inner=ours)
        return _in("train.py", "def call(): inner()", inner=torchs)

    error = fails(layers())
    assert shown(error)[-3:] == ["train.py", "deep_torch.py", "deep.py"]
    frames.trim(error)
    assert shown(error)[-2:] == ["train.py", "deep_torch.py"]
    error = fails(layers())
    frames.trim(error, to_users_line=True)
    assert shown(error)[-1] == "train.py"


def test_code_that_only_says_it_is_installed_is_not_trusted(tmp_path: Path) -> None:
    """A submission can choose the names of folders, and write below Python's own."""
    own = _in(str(tmp_path / "site-packages" / "mine.py"), "def call(): pass").__code__
    assert frames.kind(own.co_filename) == frames.LIBRARY
    assert not tampering.trusted(own)
    below = _in(os.path.join(sys.prefix, "homework", "mine.py"), "def call(): pass").__code__  # noqa: PTH118
    assert not tampering.trusted(below)
    assert tampering.trusted(json.dumps.__code__)
    assert tampering.trusted(torch.nn.Linear.forward.__code__)
    assert tampering.trusted(lab.enable.__code__)
