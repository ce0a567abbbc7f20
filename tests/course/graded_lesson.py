"""A small lesson and what students might hand in for it, for the tests of grading and the benchmark."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course.checks.observe import Observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.course.expect.attempt import Attempt

ROOT = Path(__file__).parents[2]

SETUP = """import fakegpu_lab as lab
import torch

machine = lab.enable("a100")
get_ipython().run_line_magic("load_ext", "fakegpu_lab")"""

PLACE = """def place(rows):
    ### BEGIN SOLUTION
    return torch.ones(rows, 2, device="cuda")
    ### END SOLUTION"""

PLACE_CHECK = """score = 0.0
if place(3).device.type == "cuda":
    score += 1
if torch.equal(place(3).cpu(), torch.ones(3, 2)):
    score += 1
### BEGIN HIDDEN TESTS
if place(5).shape == (5, 2):
    score += 1
### END HIDDEN TESTS
score"""

MOVE = """%%exercise move
def move(x):
    ### BEGIN SOLUTION
    return x.to("cuda")
    ### END SOLUTION"""

MOVE_CHECK = """%%check move
moved = expect.run(lambda: move(torch.ones(4)))
expect.on_device(moved, "cuda:0")
expect.equal(moved.sum().item(), 4.0)
### BEGIN HIDDEN TESTS
expect.equal(move(torch.ones(5)).sum().item(), 5.0)
### END HIDDEN TESTS"""


def _mark(grade_id: str, *, grade: bool = False, solution: bool = False, points: float | None = None) -> dict[str, Any]:
    mark = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": grade,
        "solution": solution,
        "locked": not solution,
        "task": False,
    }
    return {"nbgrader": mark if points is None else mark | {"points": points}}


def source() -> Any:
    """The lesson's source notebook: 3 points for `place`, 3 for `move`, 1 that a person gives."""
    code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell
    cells = [
        text("# Two exercises"),
        code(SETUP, metadata=_mark("setup")),
        code(PLACE, metadata=_mark("place", solution=True)),
        code(PLACE_CHECK, metadata=_mark("place-check", grade=True, points=3)),
        code(MOVE, metadata=_mark("move", solution=True)),
        code(MOVE_CHECK, metadata=_mark("move-check", grade=True, points=3)),
        text("Because.", metadata=_mark("why", grade=True, solution=True, points=1)),
    ]
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


RIGHT_PLACE = 'def place(rows):\n    return torch.ones(rows, 2).to("cuda")'
RIGHT_MOVE = "%%exercise move\ndef move(x):\n    return x.cuda()"


def submission(starter: Any, place: str = RIGHT_PLACE, move: str = RIGHT_MOVE, why: str | None = None) -> Any:
    """A starter notebook with these answers in it."""
    made = copy.deepcopy(starter)
    answers = {"place": place, "move": move, "why": why}
    for cell in made.cells:
        answer = answers.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if answer is not None:
            cell.source = answer
    return made


def raw(notebook: Any) -> bytes:
    """A notebook's file."""
    return json.dumps(notebook).encode()


def observed(
    job: dict[str, Any],
    names: dict[str, Any],
    attempt: Attempt | None,
    tell: Callable[[dict[str, Any]], None],
    file: str = "<check>",
) -> None:
    """Run a check as a submission's process does, statement by statement."""
    observation = Observation(names, attempt, file, tell)
    for text, canary in job["statements"]:
        observation.run(text, canary=canary)
    observation.end()
