"""Makes a submitted notebook gradable: restores locked cells, whatever a student did to them."""

from __future__ import annotations

import json
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from fakegpu_lab.course.cell_text.source import magics_of
from fakegpu_lab.course.grade.sandbox.limits import LARGEST, MIB
from fakegpu_lab.formatting.printable import encodable

if TYPE_CHECKING:
    from fakegpu_lab.course.grade.graded_lesson import GradedLesson, LessonCell


Placed: TypeAlias = "list[tuple[str | None, dict[str, Any]]]"
"""Submitted cells in order, each with the grade_id of the lesson's cell that it is, or None."""


MOST_CELLS, MOST_TEXT = 1000, 500_000
"""Cells of a notebook that is graded, and the characters in them; the lessons' own have some dozens, and 50,000."""


class UnreadableError(Exception):
    """The submitted file is not a notebook, or has nothing in it.

    Attributes
    ----------
    status
        ``"unreadable"`` or ``"empty"``.
    """

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Cell(BaseModel):
    """A code cell to run.

    Attributes
    ----------
    kind
        ``"student"``, ``"given"`` (the lesson's own, unchanged), ``"locked"`` or ``"check"``.
    source, visible
        What runs, with hidden parts; and what a student may see of it.
    answer
        Whether this is an exercise's answer cell.
    untouched
        Whether the answer is still as the student got it.
    """

    id: str
    kind: str
    source: str
    visible: str
    answer: bool = False
    untouched: bool = False


class Repaired(BaseModel):
    """The cells to run, and what was repaired.

    Attributes
    ----------
    texts
        Written answers, by grade_id, for a person to read.
    notes
        Sentences: what was repaired.
    """

    cells: list[Cell]
    texts: dict[str, str]
    notes: list[str]


def read(raw: bytes) -> list[dict[str, Any]]:
    """Return a notebook's cells; it needs only the parts of the notebook format that grading uses.

    Raises
    ------
    UnreadableError
        The file is not a notebook, or its cells are empty.
    """
    if not raw.strip():
        raise UnreadableError("empty", "the file is empty")
    if len(raw) > LARGEST:
        raise UnreadableError(
            "unreadable", f"the file has {len(raw) / MIB:.0f} MiB: a notebook has at most {LARGEST // MIB}"
        )
    try:
        notebook = json.loads(raw.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UnreadableError("unreadable", _not_a_notebook(raw, getattr(error, "lineno", 0))) from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if cells is None and isinstance(notebook, dict) and notebook.get("worksheets"):
        raise UnreadableError("unreadable", "the notebook has format 3, of 2014: open it in Jupyter and save it again")
    if not isinstance(cells, list):
        raise UnreadableError("unreadable", "the file is JSON, but not a notebook")
    found = [_cell(cell) for cell in cells[: MOST_CELLS + 1] if isinstance(cell, dict)]
    long = sum(len(cell["source"]) for cell in found if cell["type"] == "code" or cell["id"])
    if len(found) > MOST_CELLS or long > MOST_TEXT:
        said = f"{len(cells):,} cells with {long:,} characters of code in those that were looked at"
        raise UnreadableError(
            "unreadable", f"the notebook has {said}: at most {MOST_CELLS:,} and {MOST_TEXT:,} are graded"
        )
    if not any(cell["source"].strip() for cell in found):
        raise UnreadableError("empty", "the notebook has no cells with anything in them")
    return found


_BEGINNINGS = {
    b"PK": "a zip or an Office document",
    b"%PDF": "a PDF",
    b"\x89PNG": "a picture",
    b"\xff\xd8": "a picture",
    b"<": "a web page",
}
"""How files begin that are handed in for a notebook."""


def _not_a_notebook(raw: bytes, line: int) -> str:
    """A sentence about a file that is not JSON, or breaks off in a line."""
    text = raw.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{"):
        return "the notebook is damaged" + (f" in line {line}" if line else "")
    what = next((name for start, name in _BEGINNINGS.items() if text.startswith(start)), "")
    return f"the file is not a notebook, but {what}" if what else "the file is not a notebook"


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    source = cell.get("source", "")
    if isinstance(source, list):
        source = "".join(part for part in source if isinstance(part, str))
    metadata = cell.get("metadata")
    mark = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = mark.get("grade_id") if isinstance(mark, dict) else None
    return {
        "type": str(cell.get("cell_type", "")),
        "source": encodable(source) if isinstance(source, str) else "",
        "id": grade_id if isinstance(grade_id, str) else None,
        "attachments": _attachments(cell.get("attachments")),
        "mark": mark,
    }


def _attachments(found: Any) -> dict[str, dict[str, str]]:
    """The pictures that were dropped into a text, as far as they are in the notebook format."""
    bundles = found.items() if isinstance(found, dict) else ()
    return {
        name: pictures
        for name, pictures in bundles
        if isinstance(pictures, dict) and all(isinstance(content, str) for content in pictures.values())
    }


def repair(lesson: GradedLesson, cells: list[dict[str, Any]]) -> Repaired:
    """Put the lesson's locked cells back into a submission's cells.

    A locked cell that was edited gets its source back; of copies, the last one stays; a deleted one returns behind the
    cell that it follows in the lesson. A locked cell that lost its metadata is recognized by its source. The student's
    own cells, and copies of answers, run where they are. (nbgrader's OverwriteCells and DeduplicateIds do the same,
    except for deleted cells.)
    """
    known = {cell.grade_id: cell for cell in lesson.cells}
    notes: list[str] = []
    found = placed(lesson, cells, notes)
    given = _in_place(lesson, found)
    runnable = [_runnable(known[name] if name else None, cell, i, notes, given) for i, (name, cell) in enumerate(found)]
    texts = {
        name: cell["source"] for name, cell in found if name and known[name].manual and known[name].cell_type != "code"
    }
    return Repaired(cells=[cell for cell in runnable if cell is not None], texts=texts, notes=notes)


def _in_place(lesson: GradedLesson, found: Placed) -> set[int]:
    """Which cells are the lesson's own, unchanged, and where it has them: copies elsewhere are the student's."""
    given = {i for i, (_, cell) in enumerate(found) if cell["source"].strip() in lesson.shown}
    if not lesson.solved:
        return given
    known = {cell.grade_id for cell in lesson.cells}
    own = [cell["id"] if cell["id"] in known else cell["source"].strip() for cell in read(lesson.solved)]
    theirs = [name or cell["source"].strip() for name, cell in found]
    same = SequenceMatcher(None, own, theirs, autojunk=False).get_matching_blocks()
    return given & {at for block in same for at in range(block.b, block.b + block.size)}


def placed(lesson: GradedLesson, cells: list[dict[str, Any]], notes: list[str]) -> Placed:
    """Put every cell of a submission, and every locked cell of the lesson, where it belongs; `notes` says of what."""
    found = _identified(lesson, cells, notes)
    _put_back_missing(lesson, found, notes)
    return found


def _identified(lesson: GradedLesson, cells: list[dict[str, Any]], notes: list[str]) -> Placed:
    """Find the cell of the lesson that each submitted cell is; of copies, only the last one is."""
    known = {cell.grade_id: cell for cell in lesson.cells}
    by_source = {cell.visible.strip(): cell.grade_id for cell in lesson.cells if cell.locked}
    seen: set[str] = set()
    found: Placed = []
    for cell in reversed(cells):
        name = cell["id"] if cell["id"] in known else by_source.get(cell["source"].strip())
        if name in seen and name is not None:
            if known[name].locked:
                notes.append(f"a copy of {_locked(known[name])} was removed")
                continue
            notes.append(f"the answer {name} was copied: the last copy counts")
            name = None
        if name is not None:
            seen.add(name)
        found.append((name, cell))
    found.reverse()
    return found


def called(name: str) -> str:
    """What people call a cell with this grade_id: ``the check of move`` for ``move-check``."""
    exercise = name.removesuffix("-check")
    return name if exercise == name else f"the check of {exercise}"


def _locked(cell: LessonCell) -> str:
    return called(cell.grade_id) if cell.check else f"the locked cell {cell.grade_id}"


def _put_back_missing(lesson: GradedLesson, found: Placed, notes: list[str]) -> None:
    """Insert the locked cells that are missing."""
    seen = {name for name, _ in found}
    for i, wanted in enumerate(lesson.cells):
        if wanted.grade_id in seen:
            continue
        if wanted.locked:
            _insert(found, wanted, {cell.grade_id for cell in lesson.cells[:i]})
            notes.append(f"{_locked(wanted)} was missing: it was restored")
        else:
            notes.append(f"the answer cell {wanted.grade_id} is missing")


def _insert(found: Placed, wanted: LessonCell, before: set[str]) -> None:
    """Insert a locked cell behind the last cell that precedes it in the lesson."""
    at = max((i + 1 for i, (name, _) in enumerate(found) if name in before), default=0)
    found.insert(at, (wanted.grade_id, {"type": wanted.cell_type, "source": wanted.visible, "id": wanted.grade_id}))


def _runnable(
    wanted: LessonCell | None, cell: dict[str, Any], position: int, notes: list[str], given: set[int]
) -> Cell | None:
    if wanted is None:
        if cell["type"] != "code" or not cell["source"].strip():
            return None
        kind = "given" if position in given else "student"
        return Cell(id=f"cell {position + 1}", kind=kind, source=cell["source"], visible=cell["source"])
    name = wanted.grade_id
    if cell["type"] != wanted.cell_type:
        notes.append(f"the cell {name} had become {cell['type'] or 'something'}: it is {wanted.cell_type} again")
    if wanted.cell_type != "code":
        return None
    if wanted.locked:
        if cell["source"].strip() != wanted.visible.strip() and not _as_released(cell):
            notes.append(f"{_locked(wanted)} was edited: its text was restored")
        kind = "check" if wanted.check else "locked"
        return Cell(id=name, kind=kind, source=wanted.source, visible=wanted.visible)
    untouched = cell["source"].strip() == wanted.visible.strip()
    source, first = cell["source"], wanted.visible.lstrip().partition("\n")[0]
    if first.startswith("%%") and not source.lstrip().startswith("%%"):
        notes.append(f"the answer {name} had lost its first line: it was restored")
        source = f"{first}\n{source}"
    if (exercise := exercise_of(source)) != exercise_of(wanted.visible) and exercise:
        notes.append(f"the cell of {name} begins with %%exercise {exercise}: it should have the answer to {name}")
    return Cell(id=name, kind="student", source=source, visible=source, answer=True, untouched=untouched)


def _as_released(cell: dict[str, Any]) -> bool:
    """Whether a cell is as students got it, by nbgrader's checksum: then it was the lesson that has changed since."""
    import nbformat
    from nbgrader.utils import compute_checksum

    mark = cell.get("mark")
    if not isinstance(mark, dict):
        return False
    made = {"cell_type": cell["type"], "source": cell["source"], "metadata": {"nbgrader": mark}}
    try:
        return bool(mark.get("checksum") == compute_checksum(nbformat.from_dict(made)))
    except (KeyError, TypeError, ValueError, AttributeError):  # metadata that a student has changed
        return False


def exercise_of(source: str) -> str:
    """The exercise that a cell answers, by its magics; empty if it answers none."""
    return next((line for magic, line in magics_of(source) if magic == "exercise"), "")
