"""The format of ``lesson.yaml``, and where lessons are found."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, model_validator
from typing_extensions import Self

from fakegpu_lab.hardware.catalogue.validation_errors import first_sentence, invalid_yaml
from fakegpu_lab.hardware.errors import FakeGpuError

FILE = "lesson.yaml"
ANY_SUM = "any sum"

Extra = Literal["numba", "triton"]
"""Libraries that lessons may need beyond torch (`extras`)."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Solution(_Strict):
    """An unusual solution, which must earn all points like the author's own."""

    why: str = Field(description="what is unusual about it, or the mistake, in a phrase")
    code: str = Field(
        description="takes the place of what stands between the solution markers; with its %% line, of all the cell"
    )


class WrongSolution(Solution):
    """A solution that must not earn all points, such as a student is likely to write first."""

    score: float | None = Field(default=None, ge=0, description="the points that it earns; by default any but all")


class Exercise(_Strict):
    """An exercise: a solution cell ``id`` and a check cell ``id-check``."""

    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", description="unique in the lesson")
    title: str
    points: float = Field(default=1, ge=0, description="of all parts of its check, hidden ones too")
    needs: tuple[Extra, ...] = Field(default=(), description="libraries beyond those of the lesson: numba, triton")
    hints: tuple[str, ...] = Field(default=(), max_length=3, description="one at a time, the last nearly the answer")
    wrong: tuple[WrongSolution, ...] = Field(default=(), description="solutions that must fail; not in a release")
    right: tuple[Solution, ...] = Field(default=(), description="others that must pass; not in a release")

    @property
    def check_id(self) -> str:
        """The ``grade_id`` of the check cell; the solution cell's is `id`."""
        return f"{self.id}-check"


class Budget(_Strict):
    """The time and memory that running the whole lesson may take."""

    seconds: float = Field(default=60, gt=0, description="of a processor; asleep, three times that")
    memory: str = Field(default="1GB", description="of the kernel's process")


class Lesson(_Strict):
    """A lesson, as described by its ``lesson.yaml``. Its folder and its notebook have its name."""

    name: str = Field(default="", exclude=True)
    title: str = Field(examples=["Where tensors are"])
    goal: str = Field(
        description="what a student can do afterwards, in a sentence",
        examples=["You can say of every tensor on which device it is."],
    )
    minutes: int = Field(gt=0, description="that a student needs", examples=[40])
    track: str = Field(default="", description="lessons of one track are listed together", examples=["One GPU"])
    hardware: str = Field(default="a100", description="what %fakegpu is given in its first cell")
    host: str | None = Field(
        default=None, description="the host that its figures are for; by default, the one that its GPUs usually have"
    )
    needs: tuple[Extra, ...] = Field(default=(), description="libraries without which it is skipped: numba, triton")
    prerequisites: tuple[str, ...] = Field(default=(), description="names of lessons")
    points: float = Field(default=0, ge=0, description="of all exercises")
    exercises: tuple[Exercise, ...] = ()
    read_next: tuple[str, ...] = Field(default=(), description="links, or names of lessons")
    budget: Budget = Budget()
    allow: tuple[Literal["threading"], ...] = Field(
        default=(), description="what exercises may use although grading reports it elsewhere"
    )

    @model_validator(mode="after")
    def _adds_up(self, info: ValidationInfo) -> Self:
        ids = [exercise.id for exercise in self.exercises]
        twice = sorted({one for one in ids if ids.count(one) > 1})
        if twice:
            raise ValueError(f"two exercises have the id {twice[0]!r}")
        total = sum(exercise.points for exercise in self.exercises)
        if abs(total - self.points) > 1e-9 and info.context != ANY_SUM:
            raise ValueError(
                f"points is {self.points:g}, and the exercises have {total:g} together: "
                f"fakegpu-lab lesson points {self.name} corrects it"
            )
        return self

    def exercise(self, name: str) -> Exercise:
        """The exercise of this id.

        Raises
        ------
        FakeGpuError
            There is no such exercise.
        """
        for one in self.exercises:
            if one.id == name:
                return one
        known = ", ".join(one.id for one in self.exercises) or "none"
        raise FakeGpuError(f"The lesson {self.name} has no exercise {name!r}; it has {known}.")

    @property
    def all_needs(self) -> list[Extra]:
        """What the lesson and its exercises need together."""
        return list(dict.fromkeys([*self.needs, *(need for one in self.exercises for need in one.needs)]))

    def released(self) -> Lesson:
        """The lesson as students get it, without the wrong solutions and other right ones."""
        exercises = tuple(one.model_copy(update={"wrong": (), "right": ()}) for one in self.exercises)
        return self.model_copy(update={"exercises": exercises})

    def dump(self) -> str:
        """Write it as YAML."""
        content = self.model_dump(mode="json", exclude_defaults=True) | {"hardware": self.hardware}
        in_order = {name: content[name] for name in type(self).model_fields if name in content}
        return yaml.safe_dump(in_order, sort_keys=False, allow_unicode=True, width=110)


def load(folder: str | Path, context: str = "") -> Lesson:
    """Read the ``lesson.yaml`` of a lesson's folder. With `ANY_SUM`, its points need not add up.

    Raises
    ------
    FakeGpuError
        There is no such file, or it does not describe a lesson.
    """
    path = Path(folder) / FILE
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise FakeGpuError(f"There is no lesson in {folder}: it has no {FILE}.") from None
    except yaml.YAMLError as error:
        raise FakeGpuError(f"{path}: {invalid_yaml(error)}") from None
    if not isinstance(content, dict):
        raise FakeGpuError(f"{path} has no fields: a lesson needs a title, a goal and minutes.")
    try:
        named = {"name": re.sub(r"\.\d+$", "", path.resolve().parent.name), **content}
        return Lesson.model_validate(named, context=context)
    except ValidationError as error:
        elsewhere = "what the bundled lessons have"
        raise FakeGpuError(f"{path}: {first_sentence(error, Lesson, elsewhere)}") from None


def is_copy(folder: str, name: str) -> bool:
    """Whether a folder of this name is a copy of a lesson: ``NAME``, or ``NAME.2`` for a later edition."""
    return bool(re.fullmatch(rf"{re.escape(name)}(\.\d+)?", folder))


def shipped() -> Path:
    """The folder of the lessons as students get them: inside an installed package, or beside it in a checkout.

    Raises
    ------
    FakeGpuError
        The lessons are missing.
    """
    package = Path(__file__).resolve().parents[2]
    for folder in (package / "lessons", package.parent / "lessons" / "release", package.parent / "lessons" / "source"):
        if folder.is_dir():
            return folder
    raise FakeGpuError(f"The lessons are missing from {package}: install fakegpu-lab again.")


def find(name: str, beside: str | Path = ".") -> Lesson:
    """Find a lesson by its name: in the notebook's folder, below it, beside it, or among the shipped ones.

    Raises
    ------
    FakeGpuError
        There is no lesson of that name.
    """
    here = Path(beside).resolve()
    near = [here] if is_copy(here.name, name) else []
    for folder in (*near, here / name, here.parent / name):
        if (folder / FILE).is_file():
            return load(folder)
    if (shipped() / name / FILE).is_file():  # last: while a class is graded, they are out of sight
        return load(shipped() / name)
    known = ", ".join(sorted(path.parent.name for path in shipped().glob(f"*/{FILE}")))
    raise FakeGpuError(f"There is no lesson {name!r} here. Available: {known}.")


def find_source(name: str, roots: list[Path]) -> Path:
    """Return the folder of a lesson's source, given its path, its name in ``source/``, or a name's beginning (``03``).

    Raises
    ------
    FakeGpuError
        There is no such lesson, or more than one.
    """
    given = Path(name)
    if given.suffix == ".ipynb" and given.is_file():
        return given.parent
    if _has_notebook(given):
        return given
    known = [_lessons_of(root) for root in roots]
    for lessons in known:
        if name in lessons:
            return lessons[name]
    for lessons in known:  # the instructor's own course before the lessons that come with the package
        near = [folder for known_name, folder in lessons.items() if known_name.startswith(name)]
        if len(near) == 1:
            return near[0]
        if near:
            raise FakeGpuError(f"{name} stands for {', '.join(folder.name for folder in near)}: name one.")
    which = ", ".join(sorted({one for lessons in known for one in lessons})) or "none"
    raise FakeGpuError(f"There is no lesson {name}. Available: {which}. The path of a source folder works, too.")


def _lessons_of(root: Path) -> dict[str, Path]:
    """The lessons in a root's ``source/`` folder, by name."""
    return {folder.name: folder for folder in sorted((root / "source").glob("*")) if _has_notebook(folder)}


def _has_notebook(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.ipynb"))
