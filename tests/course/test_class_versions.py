"""What an answer writes into torch's classes while a check runs is noticed, also if it is undone in time."""

from __future__ import annotations

import importlib
import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.course.flags import class_versions
from fakegpu_lab.course.flags.class_versions import ClassVersions
from fakegpu_lab.course.grade.graded_lesson import load
from fakegpu_lab.course.grade.one_submission import grade
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.submissions import Submission
from tests.course.graded_lesson import raw, source, submission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _write(owner: type, name: str, value: Any) -> None:
    setattr(owner, name, value)
    delattr(owner, name)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda: _write(torch.Tensor, "turned", property(lambda self: 0)), ["Tensor"]),
        (lambda: _write(nn.Parameter, "turned", 3), ["Parameter"]),
        (lambda: _write(nn.Linear, "turned", 3), ["Linear"]),
        (lambda: _write(nn.Module, "turned", 3), ["Module"]),
        (lambda: _write(torch.cuda.Event, "turned", 3), ["Event"]),
        (lambda: _write(random.SystemRandom, "turned", 3), ["SystemRandom"]),
        (lambda: nn.Linear(2, 2)(torch.ones(2, 2, requires_grad=True)).sum().backward(), []),
        (lambda: torch.optim.AdamW(nn.Linear(2, 2).parameters()).step(), []),
    ],
)
def test_a_class_that_was_written_to_is_named(
    change: Callable[[], Any], named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = ClassVersions()
    monkeypatch.setattr(class_versions, "_OF_COMPILER", "not.loaded")
    versions.keep()
    change()
    assert versions.changed() == named
    versions.keep()
    assert versions.changed() == []


def test_a_layer_s_class_counts_also_where_the_compiler_was_loaded() -> None:
    importlib.import_module("torch._dynamo")
    versions = ClassVersions()
    versions.keep()
    _write(nn.Linear, "turned", 3)
    assert versions.changed() == ["Linear"]
    versions.keep()
    _write(nn.Module, "turned", 3)
    assert versions.changed() == [], "the compiler writes there, too"


@pytest.mark.usefixtures("machine")
def test_what_runs_on_the_simulated_gpu_writes_to_no_class() -> None:
    versions = ClassVersions()
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).cuda()
    versions.keep()
    with lab.record() as trace:
        model(torch.ones(3, 4, device="cuda")).sum().backward()
    assert trace.kernels
    assert versions.changed() == []
    versions.keep()
    _write(type(model[0].weight.data), "turned", 3)
    assert len(versions.changed()) == 1


def test_an_answer_that_writes_to_a_class_for_one_read_is_flagged(tmp_path: Path) -> None:
    import nbformat

    lesson = source()
    nbformat.write(lesson, tmp_path / f"{tmp_path.name}.ipynb")
    hidden = """%%exercise move
def move(x):
    for kind in [type(x)]:
        kind.turned = 3
        del kind.turned
    return x.to("cuda")
"""
    outcome = grade(
        Submission(student="ada", notebook=raw(submission(lesson, move=hidden))), load(tmp_path), Limits(), []
    )
    assert any(flag.startswith("move-check: changed the class Tensor") for flag in outcome.flags), outcome.flags
