"""A student's way through the beginning of a lesson, in JupyterLab: not solved, wrong, a hint, right, a new kernel.

Pictures of it are left in the folder that FAKEGPU_LAB_PICTURES names, to be looked at.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course.lessons import progress

if TYPE_CHECKING:
    from collections.abc import Callable

LESSON = "01-device-placement"
RELEASE = Path(__file__).parents[2] / "lessons" / "release" / LESSON


def output(page: Any, cell: int) -> str:
    """What stands below a cell."""
    found = page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea-output")
    found.first.wait_for()
    return "\n".join(found.all_inner_texts())


def run(page: Any, cell: int) -> str:
    """Run a cell, and return what stands below it then."""
    write(page, cell, None)
    return output(page, cell)


def write(page: Any, cell: int, text: str | None) -> None:
    """Put a text into a cell, and run it."""
    page.evaluate(
        """async ([place, text]) => {
            const panel = window.jupyterapp.shell.currentWidget;
            panel.content.activeCellIndex = place;
            if (text !== null) panel.content.activeCell.model.sharedModel.setSource(text);
            await window.jupyterapp.commands.execute("notebook:run-cell");
        }""",
        [cell, text],
    )


def picture(page: Any, name: str) -> None:
    folder = os.environ.get("FAKEGPU_LAB_PICTURES")
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_a_student_solves_the_first_exercise(opened: Callable[[str, list[str]], Any], server: tuple[str, Path]) -> None:
    folder = server[1] / LESSON
    folder.mkdir()
    shutil.copy(RELEASE / "lesson.yaml", folder)
    cells = [cell.source for cell in nbformat.read(RELEASE / f"{LESSON}.ipynb", as_version=4).cells]
    setup = next(text for text in cells if "%lesson" in text)
    starter = next(text for text in cells if text.startswith("%%exercise find-the-gpu"))
    check = next(text for text in cells if text.startswith("%%check find-the-gpu"))
    page = opened(f"{LESSON}/student.ipynb", [setup, starter, check, "%hint find-the-gpu", "%progress"])

    assert "exercises" in run(page, 0)
    assert "is yours to solve" in run(page, 1)
    assert "not solved yet" in run(page, 2)

    write(page, 1, '%%exercise find-the-gpu\ndevice = "cuda" if torch.cuda.is_available() else "cpu"\ncount = 2')
    wrong = run(page, 2)
    assert "not quite yet" in wrong
    assert "0.75 of 1 point" in wrong
    assert "ask torch" in wrong
    picture(page, "lesson-wrong")
    assert "Hint 1" in run(page, 3)

    device = 'device = "cuda" if torch.cuda.is_available() else "cpu"'
    write(page, 1, f"%%exercise find-the-gpu\n{device}\ncount = torch.cuda.device_count()")
    right = run(page, 2)
    assert "solved" in right
    assert "1 of 1 point" in right
    picture(page, "lesson-right")

    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.restartKernel(); }")
    assert "1 solved so far" in run(page, 0)
    assert "1 / 1" in run(page, 4)
    kept = json.loads((server[1] / progress.FILE).read_text(encoding="utf-8"))
    assert kept["lessons"][LESSON]["exercises"]["find-the-gpu"]["solved"] is True
