"""``fakegpu-lab lesson rename`` and ``lesson points``: change what stands in several places of a lesson."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import nbformat

from fakegpu_lab.course.authoring.answers import grade_id
from fakegpu_lab.course.checks import statements
from fakegpu_lab.course.lessons import lesson as lessons
from fakegpu_lab.course.lessons.release import text
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def rename(folder: Path, old: str, new: str) -> int:
    """Give an exercise another name, in its cells and in ``lesson.yaml``; return the number of cells that changed.

    Raises
    ------
    FakeGpuError
        There is no such exercise, or the new name is not valid or taken.
    """
    lesson = lessons.load(folder)
    known = [one.id for one in lesson.exercises]
    if old not in known:
        raise FakeGpuError(f"The lesson {lesson.name} has no exercise {old}: it has {', '.join(known) or 'none'}.")
    if not NAME.fullmatch(new):
        raise FakeGpuError(
            f"{new!r} is not a name for an exercise: use lowercase letters, digits and hyphens, such as one-copy."
        )
    if new in known:
        raise FakeGpuError(f"The lesson {lesson.name} already has an exercise {new}.")
    path, notebook = _notebook(folder)
    line = re.compile(rf"^(%%exercise|%%check|#? ?%hint)( +){re.escape(old)}( *)$", re.MULTILINE)
    changed = 0
    for cell in notebook.cells:
        before = (cell.source, grade_id(cell), cell.get("id"))
        cell.source = line.sub(rf"\g<1>\g<2>{new}\g<3>", cell.source)
        for suffix in ("", "-check"):
            if grade_id(cell) == old + suffix:
                cell.metadata.nbgrader["grade_id"] = new + suffix
        for suffix in ("", "-check", "-task", "-hint"):
            if cell.get("id") == old + suffix:
                cell["id"] = new + suffix
        changed += before != (cell.source, grade_id(cell), cell.get("id"))
    source = (folder / lessons.FILE).read_text(encoding="utf-8")
    source = re.sub(rf"(?m)^(\s*(?:- )?id: *)(['\"]?){re.escape(old)}\2 *$", rf"\g<1>{new}", source)
    source = re.sub(rf"(%%exercise +){re.escape(old)}\b(?!-)", rf"\g<1>{new}", source)
    _write(folder, path, notebook, source)
    return changed


def points(folder: Path) -> list[str]:
    """Copy every exercise's points from its check, and write them where else they stand; return what changed.

    Raises
    ------
    FakeGpuError
        A check cannot be read.
    """
    lesson = lessons.load(folder, lessons.ANY_SUM)
    path, notebook = _notebook(folder)
    source = (folder / lessons.FILE).read_text(encoding="utf-8")
    changed, total = [], 0.0
    for exercise in lesson.exercises:
        check = next((cell for cell in notebook.cells if grade_id(cell) == exercise.check_id), None)
        if check is None:
            raise FakeGpuError(f"{exercise.id}: there is no check {exercise.check_id}.")
        try:
            worth = sum(part.points for part in statements.parts(check.source))
        except (SyntaxError, ValueError) as error:
            raise FakeGpuError(f"{exercise.id}: its check cannot be read: {error}") from None
        total += worth
        before = (source, text(notebook))
        check.metadata.nbgrader["points"] = int(worth) if worth == int(worth) else worth
        _in_text(notebook, exercise.id, worth)
        source = _in_yaml(source, exercise.id, worth)
        if before != (source, text(notebook)):
            changed.append(f"{exercise.id}: {worth:g} points")
    source = re.sub(r"(?m)^points:.*$", f"points: {total:g}", source, count=1)
    _write(folder, path, notebook, source)
    return changed


def _in_text(notebook: Any, name: str, worth: float) -> None:
    """The line ``*3 points*`` in the text above an exercise."""
    at = next((i for i, cell in enumerate(notebook.cells) if grade_id(cell) == name), 0)
    if at and notebook.cells[at - 1].cell_type == "markdown":
        line = f"*{worth:g} point{'s' * (worth != 1)}*"
        notebook.cells[at - 1].source = re.sub(r"(?m)^\*[\d.]+ points?\*$", line, notebook.cells[at - 1].source)


def _in_yaml(source: str, name: str, worth: float) -> str:
    """The exercise's points in ``lesson.yaml``."""
    begins = re.search(rf"(?m)^(\s*)- id: *['\"]?{re.escape(name)}['\"]? *$", source)
    if begins is None:
        return source
    indent = begins[1].lstrip("\n")
    after = re.compile(rf"(?m)^{indent}- id:|^\S").search(source, begins.end() + 1)
    end = after.start() if after else len(source)
    entry, found = re.subn(r"(?m)^(\s+points:).*$", rf"\g<1> {worth:g}", source[begins.end() : end], count=1)
    if not found:
        entry = f"\n{indent}  points: {worth:g}{entry}"
    return source[: begins.end()] + entry + source[end:]


def _notebook(folder: Path) -> tuple[Path, Any]:
    path = folder / f"{folder.resolve().name}.ipynb"
    try:
        return path, nbformat.read(path, as_version=4)
    except OSError:
        raise FakeGpuError(f"There is no notebook {path}.") from None


def _write(folder: Path, path: Path, notebook: Any, source: str) -> None:
    (folder / lessons.FILE).write_text(source, encoding="utf-8", newline="\n")
    path.write_text(text(notebook), encoding="utf-8", newline="\n")
