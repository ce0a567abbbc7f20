"""``fakegpu-lab lesson new``: writes a lesson that already runs and passes its check, for its author to change."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.lessons.lesson import FILE, Exercise, Lesson, WrongSolution
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

_TITLE = """# {title}

What this lesson is about, in two sentences, and what a student can do after it.

Run the cells from top to bottom with **Shift+Enter**. Cells that begin with `%%exercise` are yours to write in."""
_SETUP = """%load_ext fakegpu_lab
%fakegpu a100
%lesson {name}

import torch"""
_IDEA = """## 1 · One idea

One idea at a time: a question first, then a cell that answers it.

**Think first.** Where is `x` after this cell, and where is `y`?"""
_SHOWN = """x = torch.arange(4.0)
y = x.to("cuda")
print(x.device, y.device)"""
_TASK = """### Exercise: there and doubled

Make `doubled`: twice the values of `x`, on the GPU.

*2 points*"""
_ANSWER = """%%exercise there-and-doubled
### BEGIN SOLUTION
doubled = x.to("cuda") * 2
### END SOLUTION"""
_CHECK = """%%check there-and-doubled
expect.on_device(doubled, "cuda:0", hint="x.to(...) returns a copy on the GPU.")
### BEGIN HIDDEN TESTS
expect.equal(doubled, torch.tensor([0.0, 2.0, 4.0, 6.0]))
### END HIDDEN TESTS"""
_HINT = """# Stuck? Remove the # from the next line and run this cell: each run gives one more hint.
# %hint there-and-doubled"""


def lesson(name: str, title: str) -> Lesson:
    """The ``lesson.yaml`` of a new lesson."""
    exercise = Exercise(
        id="there-and-doubled",
        title="there and doubled",
        points=2,
        hints=(
            "There are two steps: a copy to the GPU, and a multiplication.",
            '`x.to("cuda")` is a tensor like any other.',
            'Write `doubled = x.to("cuda") * 2`.',
        ),
        wrong=(
            WrongSolution(why="doubled on the CPU, but not moved", code="doubled = x * 2\n", score=1.0),
            WrongSolution(why="moved, but not doubled", code='doubled = x.to("cuda")\n', score=1.0),
        ),
    )
    return Lesson(
        name=name,
        title=title,
        goal="What a student can do afterwards, in one sentence.",
        minutes=20,
        hardware="a100",
        prerequisites=("00-tour",),
        points=2,
        exercises=(exercise,),
    )


def notebook(name: str, title: str) -> Any:
    """The source notebook of a new lesson."""
    cells = [
        markdown(_TITLE.format(title=title)),
        code(_SETUP.format(name=name), metadata=mark("setup")),
        markdown(_IDEA),
        code(_SHOWN),
        markdown(_TASK),
        code(_ANSWER, metadata=mark("there-and-doubled", solution=True)),
        code(_CHECK, metadata=mark("there-and-doubled-check", points=2)),
        code(_HINT),
    ]
    for i, cell in enumerate(cells, 1):
        cell["id"] = cell["metadata"].get("nbgrader", {}).get("grade_id") or f"cell-{i:02}"
    spec = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def code(source: str, metadata: dict[str, Any] | None = None, name: str = "") -> dict[str, Any]:
    """Return a code cell; nbformat makes these, too, but takes seconds to import."""
    return markdown(source, name) | {
        "cell_type": "code", "execution_count": None, "outputs": [], "metadata": metadata or {}
    }  # fmt: skip


def markdown(source: str, name: str = "") -> dict[str, Any]:
    """Return a cell of text."""
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source.splitlines(keepends=True)}


def text(notebook: Any) -> str:
    """Return a notebook as file contents, as nbformat and Jupyter write it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def mark(grade_id: str, *, solution: bool = False, points: int | None = None) -> dict[str, Any]:
    """Return the metadata that nbgrader needs for a cell."""
    fields: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points is not None,
        "solution": solution,
        "locked": not solution,
        "task": False,
    }
    return {"nbgrader": fields if points is None else fields | {"points": points}}


def write(name: str, into: Path) -> Path:
    """Make a lesson in ``into/name`` and return the folder.

    Raises
    ------
    FakeGpuError
        The name is not valid for a lesson, or it is taken.
    """
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise FakeGpuError(
            f"{name!r} is not a name for a lesson: use lowercase letters, digits and hyphens, such as 05-my-lesson."
        )
    folder = into / name
    if folder.exists():
        raise FakeGpuError(f"There is already a lesson {folder}.")
    title = re.sub(r"^\d+-", "", name).replace("-", " ").capitalize() or name
    folder.mkdir(parents=True)
    (folder / FILE).write_text(lesson(name, title).dump(), encoding="utf-8", newline="\n")
    (folder / f"{name}.ipynb").write_text(text(notebook(name, title)), encoding="utf-8", newline="\n")
    return folder
