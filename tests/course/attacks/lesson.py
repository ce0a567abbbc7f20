"""A lesson with as many equal exercises as there are attacks: ``answer(k)`` must be ``k * k``, computed on the GPU."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course.grade import graded_lesson as lessons
from fakegpu_lab.course.grade.one_submission import grade
from fakegpu_lab.course.grade.sandbox.limits import Limits
from fakegpu_lab.course.grade.submissions import Submission
from fakegpu_lab.course.lessons.release import released
from tests.course.graded_lesson import _mark

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.outcome import Outcome

SETUP = """%load_ext fakegpu_lab
%fakegpu a100
import torch
import fakegpu_lab as lab"""
GIVEN = """table = torch.arange(12.0).reshape(3, 4)


def reference(k):
    return k**2


with lab.record() as slow:
    for _ in range(50):
        table.to("cuda").square()"""
SOLUTION = """%%exercise {name}
### BEGIN SOLUTION
def answer(k):
    x = torch.tensor([float(k)], device="cuda")
    return int((x * x).item())
### END SOLUTION"""
CHECK = """%%check {name}
got = expect.run(answer, 3)
expect.equal(got, 9)
expect.kernels(named="mul", at_least=1)
expect.true(answer(6) > 35 and answer(2) < 5, "six squared is 36")
expect.equal(answer(int(table[1, 1].item())), reference(5))
expect.close(torch.tensor([answer(1), answer(4)]) / 2, [0.5, 8.0])
### BEGIN HIDDEN TESTS
expect.equal(answer({hidden}), {squared})
### END HIDDEN TESTS"""
POINTS = 6
HONEST = """%%exercise {name}
def answer(k):
    x = torch.tensor([float(k)], device="cuda")
    return int((x * x).item())"""


def source(names: list[str], text: str = CHECK, points: int = POINTS) -> Any:
    """The lesson's source notebook, with the text of its checks and what each is worth."""
    code = nbformat.v4.new_code_cell
    cells = [code(SETUP, metadata=_mark("setup")), code(GIVEN)]
    for number, name in enumerate(names):
        hidden = 70 + number
        check = text.format(name=name, hidden=hidden, squared=hidden**2)
        cells.append(code(SOLUTION.format(name=name), metadata=_mark(name, solution=True)))
        cells.append(code(check, metadata=_mark(f"{name}-check", grade=True, points=points)))
    return nbformat.v4.new_notebook(cells=cells)


def attacked(
    folder: Path,
    attacks: dict[str, str],
    files: dict[str, bytes] | None = None,
    check: tuple[str, int] = (CHECK, POINTS),
    **limits: Any,
) -> Outcome:
    """Grade one submission with an attack in the place of each answer."""
    names = [f"e{number:02}" for number in range(len(attacks))]
    notebook = source(names, *check)
    (folder / "source" / "squares").mkdir(parents=True)
    nbformat.write(notebook, folder / "source" / "squares" / "squares.ipynb")
    lesson = lessons.load(folder / "source" / "squares")
    answers = dict(zip(names, attacks.values(), strict=True))
    starter = released(notebook)
    for cell in starter.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if name in answers:
            cell.source = f"%%exercise {name}\n{answers[name].strip()}"
            cell.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": str(POINTS)})]
    handed_in = Submission(student="eve", notebook=json.dumps(starter).encode(), files=files or {})
    return grade(handed_in, lesson, Limits(**limits), [str(folder / "source")])
