"""Checks of a lesson without running it: do notebook and ``lesson.yaml`` agree, and can every hint be reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.authoring.answers import grade_id, is_solution, replaced
from fakegpu_lab.course.cell_text import source
from fakegpu_lab.course.checks import statements
from fakegpu_lab.course.lessons.classroom import Classroom
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.lessons.lesson import Exercise, Lesson

FIELDS = {"schema_version", "grade_id", "grade", "solution", "locked", "task", "points"}
"""The fields of nbgrader's metadata: its own validator refuses others."""
_LESSON = re.compile(r"^%lesson +(\S+)", re.MULTILINE)
_GPUS = re.compile(r"^%fakegpu +(.+?) *$", re.MULTILINE)
_POINTS = re.compile(r"^\*([\d.]+) points?\*$", re.MULTILINE)


def problems(lesson: Lesson, notebook: Any) -> list[str]:
    """Return a sentence for each contradiction within a lesson."""
    cells = {grade_id(cell): cell for cell in notebook.cells if grade_id(cell)}
    found = [*_leftovers(notebook), *_lesson_line(lesson, notebook), *_hardware(lesson, notebook)]
    found += _unknown_cells(lesson, cells)
    for exercise in lesson.exercises:
        found += _exercise(exercise, cells, notebook)
    return found


def _lesson_line(lesson: Lesson, notebook: Any) -> list[str]:
    named = [name for cell in notebook.cells if cell.cell_type == "code" for name in _LESSON.findall(cell.source)]
    if not lesson.exercises or named == [lesson.name]:
        return []
    said = f"it says {', '.join(named)}" if named else "no cell has it"
    return [f"The first code cell should say %lesson {lesson.name}: {said}."]


def _hardware(lesson: Lesson, notebook: Any) -> list[str]:
    gpus = next((said for cell in notebook.cells for said in _GPUS.findall(cell.source)), "")
    if not gpus or gpus.split() == lesson.hardware.split():
        return []
    return [f"lesson.yaml says hardware: {lesson.hardware}, the notebook %fakegpu {gpus}."]


def _unknown_cells(lesson: Lesson, cells: dict[str, Any]) -> list[str]:
    known = {name for exercise in lesson.exercises for name in (exercise.id, exercise.check_id)}
    found = []
    for name, cell in cells.items():
        mark = cell.metadata.nbgrader
        if (mark.get("solution") or mark.get("grade")) and cell.cell_type == "code" and name not in known:
            found.append(f"The cell {name} belongs to no exercise of lesson.yaml.")
    return found


def _leftovers(notebook: Any) -> list[str]:
    """Outputs, widget state and metadata that do not belong into a source notebook."""
    found = []
    if "widgets" in notebook.metadata:
        found.append("The notebook has widget state: fakegpu-lab lesson clean removes it.")
    if any(cell.get("outputs") for cell in notebook.cells):
        found.append("The notebook has outputs: fakegpu-lab lesson clean removes them.")
    names = [grade_id(cell) for cell in notebook.cells if grade_id(cell)]
    found += [f"Two cells have the grade_id {name}." for name in sorted({n for n in names if names.count(n) > 1})]
    for cell in notebook.cells:
        more = set(cell.metadata.get("nbgrader", {})) - FIELDS
        if more:
            found.append(f"The cell {grade_id(cell)} has metadata that nbgrader has no fields for: {sorted(more)}.")
    return found


def _exercise(exercise: Exercise, cells: dict[str, Any], notebook: Any) -> list[str]:
    found = []
    answer, check = cells.get(exercise.id), cells.get(exercise.check_id)
    if answer is None or not is_solution(answer):
        found.append(f"{exercise.id}: there is no solution cell with this grade_id.")
    elif answer.cell_type == "code" and not answer.source.lstrip().startswith(f"%%exercise {exercise.id}"):
        found.append(f"{exercise.id}: its cell should begin with %%exercise {exercise.id}.")
    if check is None or not check.metadata.nbgrader.get("grade"):
        return [*found, f"{exercise.id}: there is no grade cell {exercise.check_id}."]
    first, _, rest = check.source.lstrip().partition("\n")
    if first.strip() != f"%%check {exercise.id}":
        found.append(f"{exercise.id}: its check should begin with %%check {exercise.id}.")
    points = float(check.metadata.nbgrader.get("points", 0))
    try:
        parts = sum(part.points for part in statements.parts("\n" + rest))
    except (SyntaxError, ValueError) as error:
        return [*found, f"{exercise.id}: its check cannot be read: {error}"]
    found += _points(exercise, parts, points, notebook)
    if not exercise.wrong and exercise.points:
        found.append(f"{exercise.id}: list at least one wrong solution that a student might write (wrong:).")
    if answer is not None and answer.cell_type == "code":
        found += _no_python(exercise, answer.source)
    return found + _hint_line(exercise, notebook)


def _no_python(exercise: Exercise, cell: str) -> list[str]:
    """One sentence for each listed answer that leaves no Python in its cell: it would fail whatever the check says."""
    whole = f"If the cell has several solutions, the answer is the whole cell, from %%exercise {exercise.id} on."
    return [
        f"{exercise.id} ({one.why}): with this answer, the cell is not valid Python: {error}. {whole}"
        for one in (*exercise.wrong, *exercise.right)
        if (error := source.syntax_error(replaced(cell, one.code)))
    ]


def _points(exercise: Exercise, parts: float, metadata: float, notebook: Any) -> list[str]:
    """One sentence if the points do not agree: of the check, `lesson.yaml`, the metadata, and the text above."""
    before = ""
    for cell in notebook.cells:
        if grade_id(cell) == exercise.id:
            break
        before = cell.source if cell.cell_type == "markdown" else ""
    said = {"lesson.yaml": exercise.points, "nbgrader's metadata": metadata}
    if in_text := _POINTS.findall(before):
        said["its text"] = float(in_text[-1])
    other = [f"{place} says {number:g}" for place, number in said.items() if abs(number - parts) > 1e-9]
    if not other:
        return []
    worth = f"{exercise.id}: the parts of its check are worth {parts:g} points together, but {', '.join(other)}."
    return [f"{worth} fakegpu-lab lesson points copies them from the check."]


def _hint_line(exercise: Exercise, notebook: Any) -> list[str]:
    if not exercise.hints:
        return []
    line = re.compile(rf"^#? ?%hint {re.escape(exercise.id)} *$", re.MULTILINE)
    if not any(line.search(cell.source) for cell in notebook.cells if cell.cell_type == "code"):
        return [f"{exercise.id}: it has hints, but no cell says # %hint {exercise.id}."]
    return []


def hints(lesson: Lesson, folder: Path) -> list[str]:
    """Show every hint as a student would; return a sentence for each that cannot be reached."""
    found = []
    room = Classroom(lesson, folder / "nowhere")
    room._file = lambda: None  # type: ignore[method-assign] # nothing is saved
    for exercise in lesson.exercises:
        try:
            shown = [room.hint(exercise.id) for _ in exercise.hints]
        except FakeGpuError as error:
            found.append(f"{exercise.id}: {error}")
            continue
        missing = [i + 1 for i, hint in enumerate(exercise.hints) if hint not in shown[i]]
        found += [f"{exercise.id}: hint {i} is not reached." for i in missing]
    return found
