"""What an answer does to the memory that a check measures, beside using it, is noticed."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.course.expect.plain_data.held import tensors_in
from fakegpu_lab.course.flags.measured_memory import MeasuredMemory
from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator
from fakegpu_lab.user_code.frames import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

BEFORE = """
import gc, torch
held = [torch.ones(2**20, device="cuda")]
small = [torch.ones(8, device="cuda")]
loop = [torch.ones(2**20, device="cuda")]
loop.append(loop)
def frees(): held.clear()
def frees_little(): small.clear()
def frees_and_takes(): held[0] = None; held[0] = torch.ones(2**20, device="cuda")
def its_own(): x = torch.ones(2**20, device="cuda"); del x; return torch.ones(2**20, device="cuda")
def resets(): torch.cuda.reset_peak_memory_stats()
def collects(): del loop[:1]; gc.collect()
def collects_young(): one = held[:1]; held.clear(); one.append(one); del one; gc.collect(0)
def takes(): held.append(torch.ones(2**20, device="cuda"))
def keeps(model): model.kept = torch.ones(2**20, device="cuda")
def lets_go(model): model.kept = None
def measures(answer): torch.cuda.reset_peak_memory_stats(); before = torch.cuda.memory_allocated(); answer()
"""
LESSON = "def called(answer): torch.cuda.reset_peak_memory_stats(); answer()"


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    lab.enable("a100")
    names: dict[str, Any] = {}
    exec(compile(BEFORE, "<cell 3>", "exec"), names)
    exec(compile(LESSON, "<cell 2>", "exec"), names)
    yield names
    lab.disable()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("frees()", ["freed"]),
        ("frees_and_takes()", ["freed"]),
        ("collects()", ["freed"]),
        ("collects_young()", ["freed"]),
        ("called(frees)", ["freed"]),
        ("frees_little()", []),
        ("its_own()", []),
        ("called(its_own)", []),
        ("held = 3", []),
        ("resets()", ["reset"]),
        ("called(resets)", ["reset"]),
        ("torch.cuda.reset_peak_memory_stats()", []),
    ],
)
def test_what_an_answer_frees_or_resets_is_noticed(names: dict[str, Any], statement: str, found: list[str]) -> None:
    memory = MeasuredMemory({"<cell 2>"} | {frame.f_code.co_filename for frame in walk(sys._getframe())})
    exec(compile(statement, "<check one-check>", "exec"), names)
    assert memory.noticed() == found
    exec(compile(statement, "<check one-check>", "exec"), names)
    assert "freed" not in memory.noticed(), "it is freed only once"
    memory.close()
    assert type(lab.machine().cards[0].allocator) is CachingAllocator


def test_what_an_answer_takes_and_keeps_out_of_sight_counts_from_then_on(names: dict[str, Any]) -> None:
    memory = MeasuredMemory({"<cell 2>"} | {frame.f_code.co_filename for frame in walk(sys._getframe())})
    names["model"] = torch.nn.Module()
    names["held"].clear()
    memory.noticed()
    found = []
    for statement in ("takes()", "frees()", "takes()", "keeps(model)", "lets_go(model)", "frees()"):
        memory.keep(lambda: tensors_in([names["model"]]))
        exec(compile(statement, "<check one-check>", "exec"), names)
        found.append(memory.noticed())
    memory.close()
    assert found == [[], ["freed"], [], [], [], ["freed"]], "what the check sees is no secret"


def test_a_machine_that_the_check_enables_is_looked_at_too(names: dict[str, Any]) -> None:
    """In a check that began with another machine, an answer wiped its peak: 6 GiB were kept to."""
    memory = MeasuredMemory({"<cell 2>"})
    first = lab.machine().cards[0].allocator
    exec(compile("import fakegpu_lab as lab\nlab.enable('a100:2')", "<check one>", "exec"), names)
    assert memory.noticed() == [], "the check's own"
    assert first.__class__ is CachingAllocator
    exec(compile("resets()", "<check one>", "exec"), names)
    assert memory.noticed() == ["reset"]
    exec(compile("def replaces(): import fakegpu_lab as lab; lab.reset()", "<cell 3>", "exec"), names)
    exec(compile("replaces()", "<check one>", "exec"), names)
    assert memory.noticed() == ["replaced"], "an equal machine has another clock"
    memory.close()
    assert {card.allocator.__class__ for card in lab.machine().cards} == {CachingAllocator}
