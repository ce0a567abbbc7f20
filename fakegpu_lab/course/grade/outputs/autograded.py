"""Writes submissions as ``nbgrader autograde`` leaves them, so that its formgrader shows them to a person.

The formgrader calls a submission autograded if ``autograded/STUDENT/ASSIGNMENT`` is there and the gradebook has the
time of ``submitted/…/timestamp.txt`` (nbgrader/apps/api.py: get_autograded_students). It opens ``NOTEBOOK.ipynb`` in
that folder, and gives points and comments to cells by their ``grade_id``. Outputs are text, pictures, and the check's
card as we draw it: HTML that a submission displays would act with the instructor's rights.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course import whole_file
from fakegpu_lab.course.checks import card
from fakegpu_lab.course.checks.record import CheckRecord
from fakegpu_lab.course.grade import repair
from fakegpu_lab.course.grade.submissions import SECRET

if TYPE_CHECKING:
    from pathlib import Path

    from fakegpu_lab.course.grade.graded_lesson import GradedLesson, LessonCell
    from fakegpu_lab.course.grade.outcome import CellOutcome, CheckOutcome, Outcome
    from fakegpu_lab.course.grade.submissions import Submission

FOLDER = "autograded"
"""Beside the gradebook: nbgrader's name for it (nbgrader/coursedir.py)."""

_READ_ONLY = 0o444
"""What nbgrader gives these files (nbgrader/converters/base.py)."""


def is_new(folder: Path, lesson: GradedLesson, outcome: Outcome, submission: Submission) -> bool:
    """Whether a submission is another one than that in ``folder/STUDENT/ASSIGNMENT``; the lesson's own cells may be."""
    there = folder / outcome.student / lesson.name / f"{lesson.notebook}.ipynb"
    return _sources(there) != _written([*notebook(lesson, outcome, submission).cells])


def write(folder: Path, lesson: GradedLesson, outcome: Outcome, submission: Submission) -> None:
    """Write one submission to ``folder/STUDENT/ASSIGNMENT``.

    A submission that cannot be read is the lesson without answers, below a sentence that says why.
    """
    if PurePath(outcome.student).name != outcome.student:
        return  # a name that no folder can have: it is in the tables
    place = folder / outcome.student / lesson.name
    path = place / f"{lesson.notebook}.ipynb"
    if place.is_dir():
        shutil.rmtree(place)
    files = {**submission.files, **lesson.files, "timestamp.txt": submission.timestamp.encode()}
    if submission.secret:
        files[SECRET] = submission.secret.encode()
    for name, content in files.items():
        if content or name != "timestamp.txt":
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(_READ_ONLY)
    place.mkdir(parents=True, exist_ok=True)
    with whole_file.writing(path) as file:
        nbformat.write(notebook(lesson, outcome, submission), file)
    path.chmod(_READ_ONLY)


def answers(lesson: GradedLesson, submission: Submission) -> dict[str, str]:
    """What was submitted in the cells for answers, by grade_id."""
    wanted = {cell.grade_id for cell in lesson.cells if cell.solution}
    return {name: cell["source"] for name, cell in _placed(lesson, submission) if name in wanted}


def notebook(lesson: GradedLesson, outcome: Outcome, submission: Submission) -> Any:
    """The submission as a notebook, with the lesson's locked cells and what each cell displayed when it was graded."""
    known = {cell.grade_id: cell for cell in lesson.cells}
    ran = {cell.id: cell for cell in outcome.cells}
    checks = {check.grade_id: check for check in outcome.checks}
    cells = []
    if outcome.reason:
        reason = outcome.reason.replace("`", "´")
        about = f"**{outcome.heading}:** `{reason}`"
        cells.append(nbformat.v4.new_markdown_cell(about, metadata={_OURS: True}))
    for i, (name, submitted) in enumerate(_placed(lesson, submission)):
        wanted = known[name] if name else None
        cell = _cell(wanted, submitted)
        if cell.cell_type == "code":
            shown = ran.get(name or f"cell {i + 1}")
            cell.outputs = _outputs(shown, checks.get(name or "")) if shown else []
        cell["id"] = f"cell-{i}"
        cells.append(cell)
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": spec})


def _placed(lesson: GradedLesson, submission: Submission) -> list[tuple[str | None, dict[str, Any]]]:
    cells: list[dict[str, Any]] = []
    if not submission.problem:
        with contextlib.suppress(repair.UnreadableError):
            cells = repair.read(submission.notebook)
    return repair.placed(lesson, cells, [])


def _sources(path: Path) -> list[str] | None:
    """The text of a notebook's cells, without the lesson's own; None if there is none."""
    try:
        return _written(json.loads(path.read_text(encoding="utf-8"))["cells"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _written(cells: list[Any]) -> list[str]:
    """What a submission has written: neither the lesson's locked cells, nor what we say above all of them."""
    marks = [cell["metadata"].get("nbgrader", {}) for cell in cells]
    return [
        "".join(cell["source"])
        for cell, mark in zip(cells, marks, strict=True)
        if not mark.get("locked") and not cell["metadata"].get(_OURS)
    ]


_OURS = "fakegpu_lab"
"""In the metadata of a cell that no submission has."""


def _cell(wanted: LessonCell | None, submitted: dict[str, Any]) -> Any:
    """A cell with nbgrader's metadata, as its OverwriteCells leaves it."""
    kind = wanted.cell_type if wanted else submitted["type"]
    source = wanted.source if wanted and wanted.locked else submitted["source"]
    make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
    cell = make(source)
    if cell.cell_type == "markdown" and submitted.get("attachments"):
        cell["attachments"] = submitted["attachments"]
    if wanted:
        from nbgrader.utils import compute_checksum

        mark = wanted.model_dump(include={"grade_id", "cell_type", "grade", "solution", "locked"})
        points = {"points": wanted.points} if wanted.grade else {}
        cell.metadata["nbgrader"] = nbformat.from_dict(mark | points | {"schema_version": 3, "task": False})
        cell.metadata.nbgrader["checksum"] = compute_checksum(cell)
    return cell


def _outputs(shown: CellOutcome, check: CheckOutcome | None) -> list[Any]:
    outputs = []
    for one in shown.outputs:
        if one["output_type"] in ("stream", "error"):
            outputs.append(nbformat.from_dict(one))
        elif not (check and check.record and one["output_type"] == "execute_result"):
            data = {kind: one["data"][kind] for kind in ("text/plain", "image/png") if kind in one["data"]}
            outputs.append(nbformat.v4.new_output("display_data", data=data))
    if check and check.record:
        record = CheckRecord.model_validate(check.record)
        data = {"text/plain": card.text(record)}  # of HTML, the formgrader removes the styles
        outputs.append(nbformat.v4.new_output("display_data", data=data))
    return outputs
