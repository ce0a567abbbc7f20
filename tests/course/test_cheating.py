"""Tries to get points without an answer: none gains anything, and what an instructor should see is flagged.

Most of them share one submission, an exercise each; those that end the process have one of their own. Every exercise
asks for ``answer(k) == k * k``, and no try computes it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
import torch

pytest.importorskip("nbgrader")

from fakegpu_lab.course.grade import graded_lesson as lessons
from fakegpu_lab.course.grade.one_submission import grade
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.submissions import Submission
from fakegpu_lab.course.lessons.release import released
from tests.course.graded_lesson import _mark, raw

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import Outcome

TRIES = {
    "assert neutralised": """
def answer(k): return 0
import ast
class NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node): return None
get_ipython().ast_transformers.append(NoAsserts())
""",
    "AssertionError rebound": """
def answer(k): return 0
import builtins
builtins.AssertionError = type("Quiet", (BaseException,), {})
""",
    "checks patched": """
def answer(k): return 0
import fakegpu_lab as lab
import fakegpu_lab.trace
fakegpu_lab.trace.record.__code__ = (lambda limit=0: 0).__code__
fakegpu_lab.trace.Trace.peak_memory = lambda self, device=0: 0
""",
    "comparison patched": """
import torch
torch.equal = lambda *a: True
def answer(k):
    class Same(int):
        def __eq__(self, other): return False
    return Same(0)
""",
    "names rebound": """
def close(a, b): return True
def abs(x): return 0
def answer(k): return 0
""",
    "ledger edited": """
def answer(k): return 0
machine.devices[0].ledger.h2d_bytes = 0
""",
    "sys.exit": """
def answer(k):
    import sys
    sys.exit(0)
""",
    "hidden tests read": """
def answer(k):
    import pathlib
    return len([pathlib.Path(p).read_text() for p in SECRETS])
""",
    "grades written": """
def answer(k): return 0
for path in TARGETS:
    open(path, "a").write("eve,100")
""",
    "result shown by hand": """
def answer(k):
    from IPython.display import display
    get_ipython().displayhook(2.0)
    print(2.0)
    return 0
""",
    "the grader's pipe": """
def answer(k): return 0
import os
for number in range(3, 30):
    try: os.write(number, b'{"cell": "pipe", "score": 2.0}\\n')
    except OSError: pass
""",
    "the grader's memory": """
def answer(k):
    import sys
    return [frame.f_locals for frame in sys._current_frames().values()]
""",
    "a forged result": """
def answer(k):
    import sys, time
    frame = sys._getframe()
    while frame:
        for value in frame.f_locals.values():
            if type(value).__name__ == "SimpleQueue":
                value.put({"has_value": True, "score": 2.0, "threads": 0})
        frame = frame.f_back
    time.sleep(0.8)
    return 0
""",
    "the network": """
def answer(k):
    import socket
    socket.create_connection(("192.0.2.1", 80), timeout=1)
""",
    "a negative score": "def answer(k): return -10",
}
CHECK = """score = 0.0
for k in (2, 3):
    value = answer(k)
    assert isinstance(value, int), type(value)
    score += bool(value == k * k and torch.equal(torch.tensor(value), torch.tensor(k * k)) and close(value, k * k))
assert abs(score - 2) < 1
### BEGIN HIDDEN TESTS
assert answer(7) == 49
### END HIDDEN TESTS
score"""
SETUP = """import fakegpu_lab as lab
import torch
from math import isclose as close
machine = lab.enable("a100")"""


def lesson_and_starter(folder: Path, names: list[str]) -> tuple[Any, Any]:
    code = nbformat.v4.new_code_cell
    cells = [code(SETUP, metadata=_mark("setup"))]
    for i in range(len(names)):
        solution = "### BEGIN SOLUTION\nanswer = lambda k: k * k\n### END SOLUTION"
        cells.append(code(solution, metadata=_mark(f"a{i}", solution=True)))
        cells.append(code(CHECK, metadata=_mark(f"a{i}-check", grade=True, points=2)))
    source = nbformat.v4.new_notebook(cells=cells)
    (folder / "source").mkdir()
    nbformat.write(source, folder / "source" / "tries.ipynb")
    return lessons.load(folder / "source"), released(source)


def tried(folder: Path, answers: list[str], **limits: Any) -> Outcome:
    lesson, starter = lesson_and_starter(folder, answers)
    hidden, out = folder / "source", folder / "points.csv"
    out.write_text("student,score\n")
    given = f"SECRETS, TARGETS = [{str(hidden / 'tries.ipynb')!r}], [{str(out)!r}]\n"
    wanted = iter(answers)
    for cell in starter.cells:
        if cell.metadata.nbgrader.solution:
            cell.source = given + next(wanted)
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2.0"})]
        elif cell.metadata.nbgrader.grade:
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2.0"})]  # replayed
    outcome = grade(Submission(student="eve", notebook=raw(starter)), lesson, Limits(**limits), [str(hidden), str(out)])
    assert out.read_text() == "student,score\n"
    return outcome


FLAGGED = [
    ("assert neutralised", "changes how cells run (.ast_transformers)"),
    ("AssertionError rebound", "builtins.AssertionError had been replaced"),
    ("checks patched", "fakegpu_lab.trace.record.__code__ had been replaced"),
    ("comparison patched", "torch.equal had been replaced"),
    ("names rebound", "the name close had been given another meaning"),
    ("names rebound", "the name abs had been given another meaning"),
    ("ledger edited", "reaches into the simulated machine's internal records (.ledger)"),
    ("the grader's memory", "reads f_locals"),
]
FLAGGED_WHILE_RUNNING = [
    "tried to change a device's ledger",
    "tried to change the class Trace",
    "tried to open a file of the course",
    "wrote into the grader's own pipe",
    "used sys._current_frames",
    "sent a result while its own code was still running",
]


def test_tries_gain_nothing_and_are_flagged(tmp_path: Path, subtests: pytest.Subtests) -> None:
    """One submission with a try in every exercise but the last, which is answered honestly."""
    outcome = tried(tmp_path, [*TRIES.values(), "def answer(k): return k * k"])
    for name, check in zip(TRIES, outcome.checks, strict=False):
        with subtests.test(name):
            assert check.ran, outcome.reason
            assert check.points == 0.0
    with subtests.test("the honest answer"):
        assert outcome.checks[-1].points == 2.0
        assert outcome.status == "graded"
    for name, sentence in FLAGGED:
        with subtests.test(sentence):
            place = f"a{list(TRIES).index(name)}"
            assert [flag for flag in outcome.flags if flag.startswith(place) and sentence in flag], outcome.flags
    for sentence in FLAGGED_WHILE_RUNNING:
        with subtests.test(sentence):
            assert sentence in outcome.flags
    if sys.platform == "linux":
        assert {"memory", "file"} <= set(outcome.confined)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_bomb_is_stopped(tmp_path: Path) -> None:
    outcome = tried(tmp_path, ["import os\nwhile True: os.fork()"], processes=20, cell_seconds=5)
    assert outcome.score == 0
    assert "started more than 80 processes" in outcome.flags or outcome.status == "processes"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux knows which pages are shared")
def test_memory_that_forked_processes_share_counts_once(tmp_path: Path) -> None:
    answer = """
import os, time
block = b"x" * (300 * 2**20)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(1.5)
        os._exit(0)
time.sleep(1.5)
"""
    outcome = tried(tmp_path, [answer])
    most = 1500 if torch.version.cuda else 900  # importing a CUDA build alone takes half a gigabyte more
    assert 300 * 2**20 < outcome.peak_bytes < most * 2**20


@pytest.mark.parametrize("where", ["sys.stdout.write('x' * 2**20)", "os.write(1, b'x' * 2**20)"])
def test_output_without_end_is_ended(tmp_path: Path, where: str) -> None:
    outcome = tried(tmp_path, [f"import os, sys\nwhile True: {where}"], file_bytes=2**24, cell_seconds=10)
    assert (outcome.score, outcome.status) == (0, "output")
    assert sum(len(str(cell.outputs)) for cell in outcome.cells) < 2_000_000
