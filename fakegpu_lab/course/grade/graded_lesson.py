"""A lesson as the grader needs it, read from its source notebook: what is locked, graded and hidden."""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import nbformat
from pydantic import BaseModel

from fakegpu_lab.course.cell_text import reached
from fakegpu_lab.course.cell_text.source import bound_names, class_names, read_names, tree_of, written_file
from fakegpu_lab.course.checks.statements import expected_names
from fakegpu_lab.course.flags.made_with import MadeWith
from fakegpu_lab.course.flags.policy import Policy
from fakegpu_lab.course.lessons import lesson as yaml
from fakegpu_lab.course.lessons import release
from fakegpu_lab.hardware.errors import FakeGpuError


class LessonCell(BaseModel):
    """A cell with nbgrader's metadata.

    Attributes
    ----------
    source, visible
        With solution and hidden parts; and as students get it.
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


class About(BaseModel):
    """What ``lesson.yaml`` says of an exercise; points are None without one, and `right` has other right answers."""

    title: str
    points: float | None = None
    hints: int = 0
    right: list[str] = []


class GradedLesson(BaseModel):
    """A lesson that submissions are graded by.

    Attributes
    ----------
    name, notebook
        The assignment's name, and its notebook's without ``.ipynb``.
    shown
        The source of every other code cell of the lesson: students may change these.
    raising
        The sources of those cells that are meant to end with an error.
    files
        The lesson's other files, by relative path: they replace a submission's.
    solved
        The lesson's own notebook, with its solutions.
    exercises
        By id, those of ``lesson.yaml``.
    allow
        What exercises may use that is flagged elsewhere.
    given_by_solution
        Names that the instructor's own solution binds, so that a student may, too.
    classes
        The classes in all of the lesson's cells, solutions included: a check may ask their objects.
    digest
        A hash of all of it.
    version
        Which release this is, for people: its day and its hash; empty for the lesson as it is now.
    """

    name: str
    notebook: str
    cells: list[LessonCell]
    shown: list[str]
    raising: list[str] = []
    exercises: dict[str, About]
    allow: list[str]
    files: dict[str, bytes]
    solved: bytes = b""
    given_by_solution: list[str]
    classes: list[str] = []
    digest: str
    version: str = ""

    def about(self, exercise: str) -> About:
        """What is known of an exercise; without a ``lesson.yaml``, a title made from its id."""
        return self.exercises.get(exercise) or About(title=exercise.replace("-", " ").capitalize())

    def policy(self, modules: list[str]) -> Policy:
        """What flags a submission's cells; `modules` were handed in with it."""
        answers = self._answers + [code for one in self.exercises.values() for code in one.right]
        compared = self.compared - _read_by(answers)
        asked = _read_by([cell.source for cell in self.cells if cell.check])
        return Policy(self._given, self.read, self.allow, modules, answers, compared, asked)

    @cached_property
    def made_with(self) -> MadeWith:
        """What the lesson makes its values with."""
        return MadeWith(self._given, self._answers, self.read)

    @property
    def _given(self) -> list[str]:
        return [cell.source for cell in self.cells if cell.locked and not cell.grade] + self.shown

    @property
    def read(self) -> set[str]:
        """Names that the lesson's own cells make, or one of its checks, and that checks read."""
        return read_names((cell.source for cell in self.cells if cell.check), self._made, self._answers)

    def read_by(self, check: str) -> frozenset[str]:
        """Those that one check reads."""
        return _read_in(check, tuple(self._made), tuple(self._answers))

    @property
    def _made(self) -> list[str]:
        """What makes the names that a check reads: the lesson's own cells, and its checks, each for those after it."""
        return self._given + [cell.source for cell in self.cells if cell.check]

    @property
    def _answers(self) -> list[str]:
        return [cell.source for cell in self.cells if cell.solution]

    @property
    def compared(self) -> set[str]:
        """Names of values that the lesson's own cells make and with which its checks compare results."""
        made = set().union(*(bound_names(text) for text in self._given))
        return made & set().union(*(expected_names(cell.source) for cell in self.cells if cell.check))

    @property
    def solutions_choose_gpus(self) -> bool:
        """Whether an answer is expected to enable other GPUs."""
        return any(cell.solution and ("enable(" in cell.source or "%fakegpu" in cell.source) for cell in self.cells)

    @property
    def checks(self) -> list[LessonCell]:
        """The cells that give points."""
        return [cell for cell in self.cells if cell.grade]

    @property
    def max_score(self) -> float:
        """The points of all cells."""
        return sum(cell.points for cell in self.checks)


@lru_cache(maxsize=1024)
def _read_in(check: str, given: tuple[str, ...], answers: tuple[str, ...]) -> frozenset[str]:
    return frozenset(read_names([check], given, answers))


def _read_by(answers: list[str]) -> set[str]:
    return set().union(*(reached.read_names(tree_of(text)) for text in answers))


def load(folder: Path) -> GradedLesson:
    """Read a lesson's source.

    Raises
    ------
    FakeGpuError
        The folder does not have exactly one notebook, or its nbgrader metadata are wrong.
    """
    folder = folder.resolve()
    notebooks = sorted(path for path in folder.glob("*.ipynb"))
    if len(notebooks) != 1:
        raise FakeGpuError(f"{folder} has {len(notebooks)} notebooks, but a lesson has one.")
    raw = notebooks[0].read_bytes()
    source = nbformat.reads(raw.decode("utf-8"), as_version=4)
    cells = _lesson_cells(source, release.released(source))
    files = _other_files(folder) | _written_files(source)  # an earlier run may have left an older version there
    lesson = yaml.load(folder) if (folder / yaml.FILE).is_file() else None
    digest = hashlib.sha256(raw)
    for name, content in files.items():
        digest.update(content if name == yaml.FILE else name.encode() + b"\0" + content)
    return GradedLesson(
        name=folder.name,
        notebook=notebooks[0].stem,
        cells=cells,
        shown=[cell.source.strip() for cell in source.cells if cell.cell_type == "code" and not _is_marked(cell)],
        raising=[cell.source.strip() for cell in source.cells if "raises-exception" in cell.metadata.get("tags", [])],
        exercises={
            one.id: About(
                title=one.title, points=one.points, hints=len(one.hints), right=[other.code for other in one.right]
            )
            for one in (lesson.exercises if lesson is not None else ())
        },
        allow=list(lesson.allow) if lesson is not None else [],
        files=files,
        solved=raw,
        given_by_solution=sorted({name for cell in cells if cell.solution for name in bound_names(cell.source)}),
        classes=sorted(set().union(*(class_names(cell.source) for cell in source.cells if cell.cell_type == "code"))),
        digest=digest.hexdigest(),
    )


def _written_files(source: Any) -> dict[str, bytes]:
    """The files that cells of the lesson write with ``%%writefile``: importing them is not a student's idea."""
    given = [cell for cell in source.cells if cell.cell_type == "code" and not _is_answer(cell)]
    return {
        name: (text if text.endswith("\n") else text + "\n").encode()
        for name, text in filter(None, (written_file(cell.source) for cell in given))
        if ".." not in Path(name).parts
    }


def _is_answer(cell: Any) -> bool:
    return _is_marked(cell) and bool(cell.metadata.nbgrader.solution)


def _lesson_cells(source: Any, starter: Any) -> list[LessonCell]:
    """The cells with nbgrader's metadata, each with its source in the released notebook."""
    visible = {cell.metadata.nbgrader.grade_id: cell for cell in starter.cells if _is_marked(cell)}
    cells = []
    for cell in source.cells:
        if _is_marked(cell):
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
    return cells


def _is_marked(cell: Any) -> bool:
    meta = cell.metadata.get("nbgrader", {})
    return bool(meta.get("grade") or meta.get("solution") or meta.get("locked"))


def _other_files(folder: Path) -> dict[str, bytes]:
    """The lesson's files other than notebooks, by relative path; last the ``lesson.yaml`` as students get it."""
    files = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and path.suffix != ".ipynb" and inside.name != yaml.FILE and release.belongs(inside):
            files[inside.as_posix()] = path.read_bytes()
    if (folder / yaml.FILE).is_file():
        files[yaml.FILE] = yaml.load(folder).released().dump().encode()
    return files
