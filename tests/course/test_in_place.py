"""What a check computes with, and an answer changes in place, is noticed; looking at it leaves no trace."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.course.expect.plain_data.in_place import InPlace
from fakegpu_lab.course.grade.graded_lesson import load
from fakegpu_lab.course.grade.one_submission import grade
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.submissions import Submission
from tests.course.graded_lesson import MOVE_CHECK, raw, source, submission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _scaled(layer: nn.Module) -> None:
    with torch.no_grad():
        next(layer.parameters()).mul_(2)


def _proxied(layer: nn.Module) -> None:
    layer.forward = lambda x: x * 0  # type: ignore[method-assign]


def _another_class(layer: Any) -> None:
    layer[1].__class__ = nn.Identity


def _slower(optimizer: Any) -> None:
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: torch.ones(3), lambda x: x.zero_()),
        (lambda: torch.ones(3, device="cuda"), lambda x: x.zero_()),
        (lambda: torch.ones(3, device="cuda").bfloat16(), lambda x: x.data.zero_()),
        (lambda: torch.ones(4, 6, device="cuda").t()[1:], lambda x: x[0].mul_(3)),
        (lambda: torch.ones(2**21), lambda x: x.zero_()),
        (lambda: torch.ones(3, dtype=torch.complex64), lambda x: x.zero_()),
        (lambda: torch.ones(3, dtype=torch.bool, device="cuda"), lambda x: x.zero_()),
        (lambda: np.ones(3), lambda x: x.fill(0)),
        (lambda: [1, (2, torch.ones(2))], lambda x: x[1][1].zero_()),
        (lambda: {"a": [1, 2]}, lambda x: x["a"].pop()),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()).cuda(), _scaled),
        (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()), _another_class),
        (lambda: nn.Linear(2, 2), _proxied),
        (lambda: nn.Linear(2, 2).cuda(), lambda x: x.register_forward_hook(lambda *given: given[2] * 0)),
        (lambda: [nn.Sequential(nn.ReLU())], lambda x: x[0][0].register_forward_pre_hook(print)),
        (lambda: nn.Linear(2, 2).cuda(), lambda x: x.weight.register_hook(lambda gradient: gradient * 0)),
        (lambda: torch.ones(2, requires_grad=True), lambda x: x.register_hook(lambda gradient: gradient * 0)),
        (lambda: torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), lambda x: x.register_step_pre_hook(print)),
        (lambda: nn.BatchNorm1d(2), lambda x: x(torch.randn(8, 2))),
        (lambda: torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), _slower),
    ],
)
def test_a_value_that_changes_in_place_is_named(make: Callable[[], Any], change: Callable[[Any], Any]) -> None:
    thing, known = make(), InPlace()
    known.look(thing, "x")
    assert known.changed() == []
    known.look(thing, "x")
    change(thing)
    known.look(thing, "another name")
    assert known.changed() == ["x"]
    assert known.changed() == [], "what was found is forgotten"


def test_attributes_of_an_object_of_the_lesson_s_are_looked_at() -> None:
    """`max([photos], key=id).milliseconds = 0`: reading took no time, and 05's challenge gave 5 of 5 points."""
    names: dict[str, Any] = {}
    text = "class Photos:\n    def __init__(self): self.milliseconds, self.sizes = 3.5, [1]\n    def size(self): pass"
    exec(compile(text, "<the lesson>", "exec"), names)
    photos, known = names["Photos"](), InPlace(lambda file: file == "<the lesson>")
    for change in (lambda: setattr(photos, "milliseconds", 0), lambda: photos.sizes.append(2)):
        known.look(photos, "photos")
        change()
        assert known.changed() == ["photos"]
    for other in (known, InPlace()):
        other.look(photos, "photos")
        photos.size()
        assert other.changed() == []


@pytest.mark.usefixtures("machine")
def test_looking_takes_no_time_and_leaves_no_record() -> None:
    layer, known = nn.Linear(64, 64).cuda(), InPlace()
    x = torch.ones(8, 64, device="cuda").to_sparse()
    with lab.record() as trace:
        began = lab.clock()
        for thing in (layer, layer.weight, x, [layer.bias], object(), nn.Linear):
            known.look(thing, "x")
        assert known.changed() == []
        assert lab.clock() == began
    assert [trace.kernels, trace.transfers, trace.waits] == [[], [], []]


IN_PLACE = MOVE_CHECK.replace("moved =", "given = torch.ones(4)\nmoved =").replace("move(torch.ones(4))", "move(given)")


def _graded(folder: Path, answer: str, solution: str = "return x.to", first: str = "") -> list[str]:
    import nbformat

    lesson = source()
    for cell in lesson.cells:
        cell.source = IN_PLACE if cell.source == MOVE_CHECK else cell.source.replace("return x.to", solution)
    (folder / "one").mkdir(exist_ok=True)
    nbformat.write(lesson, folder / "one" / "one.ipynb")
    handed = submission(lesson, move=f"%%exercise move\ndef move(x):\n{answer}")
    handed.cells[:0] = [nbformat.v4.new_code_cell(first)] if first else []
    outcome = grade(Submission(student="ada", notebook=raw(handed)), load(folder / "one"), Limits(), [])
    (move,) = [check for check in outcome.checks if check.grade_id == "move-check"]
    assert move.points == 3
    return outcome.flags


def test_an_answer_that_changes_what_its_check_uses_is_flagged(tmp_path: Path) -> None:
    assert _graded(tmp_path, "    return x.cuda()") == []
    found = _graded(tmp_path, "    y = x.cuda()\n    x.zero_()\n    return y")
    assert found == ["move-check: changed given in place, which the check uses"]


def test_but_not_if_the_lesson_s_own_solution_changes_it_too(tmp_path: Path) -> None:
    answer = "    y = x.cuda()\n    x.zero_()\n    return y"
    assert _graded(tmp_path, answer, "y = x.clone()\n    x.add_(1)\n    return y.to") == []


def test_names_that_star_imports_bring_before_the_lesson_s_own_are_no_change(tmp_path: Path) -> None:
    """`from torch.nn.functional import *` brings `torch`: it was "changed in place" where it had not been there."""
    assert _graded(tmp_path, "    return x.cuda()", first="from torch.nn.functional import *") == []
    (found, *_) = _graded(tmp_path, "    return x.cuda()", first="torch = __import__('math')")
    assert found.startswith("cell 1: ")


def test_what_is_looked_at_is_not_kept_alive() -> None:
    known, model = InPlace(), torch.nn.Linear(2, 2)
    known.look(model, "model")
    gone = weakref.ref(model)
    del model
    assert gone() is None
    kept = torch.zeros(2)
    known.look(kept, "kept")
    kept += 1
    assert known.changed() == ["kept"]
