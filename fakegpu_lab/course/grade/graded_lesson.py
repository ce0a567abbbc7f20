"""A lesson as a grader needs it: what is locked, what gives points, what is hidden. Made from its source notebook."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

import nbformat
from pydantic import BaseModel

from fakegpu_lab.course.grade.flags.source_text import code_of
from fakegpu_lab.course.lessons import lesson as yaml
from fakegpu_lab.hardware.errors import FakeGpuError


class LessonCell(BaseModel):
    """A cell that nbgrader knows.

    Attributes
    ----------
    source, visible
        With solution and hidden parts; and as it is released.
    """

    grade_id: str
    cell_type: str
    source: str
    visible: str
    grade: bool
    solution: bool
    locked: bool
    points: float = 0.0

    @property
    def manual(self) -> bool:
        """Whether a person gives the points."""
        return self.grade and (self.solution or self.cell_type != "code")

    @property
    def check(self) -> bool:
        """Whether the cell itself gives the points."""
        return self.grade and not self.manual


class GradedLesson(BaseModel):
    """A lesson to grade by.

    Attributes
    ----------
    name, notebook
        The assignment, and its notebook's name without ``.ipynb``.
    files
        Other files of the lesson, by relative path: they are put over a submission's.
    given_by_solution
        Names that the instructor's own solution binds: a student may, too.
    """

    name: str
    notebook: str
    cells: list[LessonCell]
    files: dict[str, bytes]
    given_by_solution: list[str]
    digest: str

    @property
    def checks(self) -> list[LessonCell]:
        """The cells that give points."""
        return [cell for cell in self.cells if cell.grade]

    @property
    def max_score(self) -> float:
        """All points."""
        return sum(cell.points for cell in self.checks)


def find(name: str, roots: list[Path]) -> Path:
    """Return the folder of a lesson's source: a path, a name in ``source/``, or the beginning of one (``03``).

    Raises
    ------
    FakeGpuError
        There is none, or more than one.
    """
    given = Path(name)
    if given.suffix == ".ipynb" and given.is_file():
        return given.parent
    if given.is_dir() and list(given.glob("*.ipynb")):
        return given
    known: dict[str, Path] = {}
    for root in roots:
        for folder in sorted((root / "source").glob("*")):
            if folder.is_dir() and list(folder.glob("*.ipynb")):
                known.setdefault(folder.name, folder)
    if name in known:
        return known[name]
    near = [folder for known_name, folder in known.items() if known_name.startswith(name)]
    if len(near) == 1:
        return near[0]
    which = ", ".join(sorted(known)) or "none"
    if near:
        raise FakeGpuError(f"{name} begins the names of {', '.join(folder.name for folder in near)}: name one.")
    raise FakeGpuError(f"There is no lesson {name}: there are {which}. A path to a source folder is understood, too.")


def load(folder: Path) -> GradedLesson:
    """Read a lesson's source.

    Raises
    ------
    FakeGpuError
        There is not one notebook, or its nbgrader metadata are wrong.
    """
    from fakegpu_lab.course.lessons.release import released

    folder = folder.resolve()
    notebooks = sorted(path for path in folder.glob("*.ipynb"))
    if len(notebooks) != 1:
        raise FakeGpuError(f"{folder} has {len(notebooks)} notebooks, and a lesson is one.")
    raw = notebooks[0].read_bytes()
    source = nbformat.reads(raw.decode("utf-8"), as_version=4)
    starter = released(source)
    visible = {cell.metadata.nbgrader.grade_id: cell for cell in starter.cells if _known(cell)}
    cells = []
    for cell in source.cells:
        if _known(cell):
            meta = cell.metadata.nbgrader
            cells.append(
                LessonCell(
                    grade_id=meta.grade_id,
                    cell_type=cell.cell_type,
                    source=cell.source,
                    visible=visible[meta.grade_id].source,
                    grade=meta.grade,
                    solution=meta.solution,
                    locked=not meta.solution and (meta.grade or meta.locked),
                    points=float(meta.get("points", 0)),
                )
            )
    files, digest = {}, hashlib.sha256(raw)
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and path.suffix != ".ipynb" and inside.name != yaml.FILE and _ordinary(inside):
            files[inside.as_posix()] = path.read_bytes()
            digest.update(inside.as_posix().encode() + b"\0" + files[inside.as_posix()])
    if (folder / yaml.FILE).is_file():
        files[yaml.FILE] = yaml.load(folder).released().dump().encode()
        digest.update(files[yaml.FILE])
    given = sorted({name for cell in cells if cell.solution for name in bound(cell.source)})
    return GradedLesson(
        name=folder.name,
        notebook=notebooks[0].stem,
        cells=cells,
        files=files,
        given_by_solution=given,
        digest=digest.hexdigest(),
    )


def _known(cell: Any) -> bool:
    meta = cell.metadata.get("nbgrader", {})
    return bool(meta.get("grade") or meta.get("solution") or meta.get("locked"))


def _ordinary(path: Path) -> bool:
    return not any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def bound(source: str) -> set[str]:
    """Names that a cell binds at its top level, if it can be parsed."""
    try:
        tree = ast.parse(code_of(source))
    except SyntaxError:
        return set()
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        else:
            found |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found
