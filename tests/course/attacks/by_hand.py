"""Attacks on what a check asks: recordings made by hand, objects that answer for themselves, calls that never run.

In the check, each part is worth a point; each attack says which parts it must not earn, and whether it is flagged.
"""

from __future__ import annotations

from typing import NamedTuple

CHECK = """%%check {name}
expect.true(len(mine.kernels) <= 2, "at most two kernels")
expect.kernels(at_most=2, trace=mine)
expect.calls("synchronize")
expect.true(there.is_contiguous() and there.numel() == 4, "four numbers, in order")
"""
PARTS = 4
HONEST = """
with lab.record() as mine:
    there = torch.ones(4, device="cuda") * 2
torch.cuda.synchronize()
"""
NO_RECORDING, NO_CALL, NO_TENSOR = (0, 1), (2,), (3,)


class Attack(NamedTuple):
    """An answer, the parts that it must not earn, and a word of its flag; empty if it needs none."""

    code: str
    unmet: tuple[int, ...]
    flag: str = ""


def _instead(kernels: str) -> str:
    return f"{HONEST}for _ in range(9): there = there * 2\n{kernels}"


def _call(code: str) -> str:
    return HONEST.replace("torch.cuda.synchronize()\n", code)


TENSOR = """
class Mine:
    def is_contiguous(self): return True
    def numel(self): return 4
there = Mine()
"""

BY_HAND = {
    "a class with records": Attack(_instead("class R: kernels = []\nmine = R()"), NO_RECORDING),
    "a class that can be called": Attack(
        _instead("class R:\n    kernels = []\n    def __call__(self): pass\nmine = R()"), (0,)
    ),
    "a namespace": Attack(_instead("import argparse\nmine = argparse.Namespace(kernels=[])"), NO_RECORDING),
    "a simple namespace": Attack(
        _instead("from types import SimpleNamespace\nmine = SimpleNamespace(kernels=[])"), NO_RECORDING, "types"
    ),
    "a named tuple": Attack(
        _instead("from collections import namedtuple\nmine = namedtuple('R', 'kernels')([])"), NO_RECORDING
    ),
    "a list with records": Attack(_instead("class R(list): kernels = ()\nmine = R()"), NO_RECORDING),
    "a module with records": Attack(
        _instead("mine = torch.nn.Module()\nmine.kernels = []"), NO_RECORDING, "assigns to mine.kernels"
    ),
    "a function with records": Attack(_instead("def mine(): pass\nmine.kernels = []"), (0,), "assigns to mine.kernels"),
    "a list": Attack(_instead("mine = []"), NO_RECORDING),
    "a call under if False": Attack(_call("if False: torch.cuda.synchronize()"), NO_CALL),
    "a call under a comparison": Attack(_call("if 1 > 2 or not True:\n    torch.cuda.synchronize()"), NO_CALL),
    "a call in a function that nobody calls": Attack(_call("def never(): torch.cuda.synchronize()"), NO_CALL),
    "a call in a function that calls itself": Attack(
        _call("def never():\n    torch.cuda.synchronize()\n    never()"), NO_CALL
    ),
    "a call in a lambda": Attack(_call("nobody = lambda: torch.cuda.synchronize()"), NO_CALL),
    "a call in a class that nobody uses": Attack(
        _call("class Never:\n    def run(self): torch.cuda.synchronize()"), NO_CALL
    ),
    "a call after the end": Attack(_call("def f():\n    return 1\n    torch.cuda.synchronize()\nf()"), NO_CALL),
    "a call in a loop over nothing": Attack(_call("for _ in (): torch.cuda.synchronize()"), NO_CALL),
    "a call that and leaves out": Attack(_call("False and torch.cuda.synchronize()"), NO_CALL),
    "a tensor made by hand": Attack(HONEST + TENSOR, (), "read .is_contiguous of an object of the answer's own"),
    "a tensor made by hand, of a library's class": Attack(
        HONEST + TENSOR.replace("class Mine", "class Mine(torch.nn.Module)"), (), "read .numel of an object"
    ),
    "a mock of a tensor": Attack(
        HONEST + "from unittest.mock import Mock\nthere = Mock()\nthere.numel.return_value = 4",
        (),
        "Mock",
    ),
}
