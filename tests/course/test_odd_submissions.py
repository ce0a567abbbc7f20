"""Submissions of students who are honest and in a hurry: what is broken costs its own exercise, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("nbgrader")

from fakegpu_lab.course.expect.attempt import placeholder
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.grade.one_submission import _suspicious_files
from tests.course.attacks.lesson import POINTS, attacked

if TYPE_CHECKING:
    from pathlib import Path

RIGHT = """
def answer(k):
    x = torch.tensor([float(k)], device="cuda")
    return int((x * x).item())
"""
BROKEN = {
    "a wrong dedent": "def answer(k):\n        x = k\n    return x",
    "a missing colon": "def answer(k)\n    return k",
    "an open bracket": "def answer(k):\n    return (k",
    "a text without an end": "def answer(k):\n    return 'k",
}
UNUSUAL = {
    "a log": "import logging\nlog = logging.getLogger('mine')\nlogging.basicConfig(level=logging.INFO)\n"
    + RIGHT.replace("return", "log.info('answer %s', k)\n    return"),
    "a warning": "import warnings\n" + RIGHT.replace("return", "warnings.warn('mine')\n    return"),
    "a placeholder that was left": "rows = ...\nrows = 3" + RIGHT,
    "many commands": "!true\nif torch is None:\n" + "    !true\n" * 58 + RIGHT,  # one runs: each takes a second
}
UNREADABLE = {
    "too many commands": "!e\n" * 400 + RIGHT,
    "too many terms": "x = " + " + ".join(["1"] * 900) + RIGHT,
}


def test_what_is_broken_costs_its_own_exercise(tmp_path: Path, subtests: pytest.Subtests) -> None:
    answers = BROKEN | UNUSUAL | UNREADABLE | {"right": RIGHT}
    outcome = attacked(tmp_path, answers, cell_seconds=30, total_seconds=600)
    assert outcome.status == "graded", outcome.reason
    for number, (name, check) in enumerate(zip(answers, outcome.checks, strict=True)):
        with subtests.test(name):
            flags = [flag for flag in outcome.flags if flag.startswith((f"e{number:02}:", f"e{number:02}-check:"))]
            assert check.points == (0 if name in BROKEN else POINTS), (check, flags)
            if name in UNREADABLE:
                assert "to be read" in str(flags)
            elif name != "many commands":
                assert not flags


@pytest.mark.parametrize(
    ("text", "line"),
    [("x = ...", 1), ("x = ...\nx = 2", None), ("x = 2\nx = ...\ny = ...", 3), ("def f(): ...", 1),
     ("def f():\n    return ...", 2),
     ("f = ...\ndef f(): return 1", None), ("a.b = ...", 1),
     ("class P(Protocol):\n    def size(self) -> int: ...", None), ("@overload\ndef f(x: int): ...", None),
     ("class A:\n    @abc.abstractmethod\n    def f(self): ...", None), ("class A:\n    def f(self): ...", 2)],
)  # fmt: skip
def test_a_placeholder_counts_until_its_name_has_a_value(text: str, line: int | None) -> None:
    import ast

    assert placeholder(ast.parse(text)) == line


def test_a_module_is_read_as_python_decodes_it() -> None:
    hidden = "# coding: utf-7\n+AGkAbQBwAG8AcgB0ACAAYwB0AHkAcABlAHM-\n"  # import ctypes
    found = _suspicious_files(Policy(), {"helper.py": hidden.encode()})
    assert found == {"helper.py: is written in utf-7", "helper.py: line 2 imports ctypes"}
    hiding = {"photos/__init__.py": b"x = 1"}
    assert _suspicious_files(Policy(), hiding, {"photos"}) == {
        "photos/__init__.py: takes the place of the module photos"
    }
    assert _suspicious_files(Policy(), {"helper.py": b"# coding: no-such\n"}) == {"helper.py: cannot be decoded"}
    assert _suspicious_files(Policy(), {"helper.py": "# coding: utf-8\nx = 'é'\n".encode()}) == set()
