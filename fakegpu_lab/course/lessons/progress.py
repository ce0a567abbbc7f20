"""A student's progress: one JSON file beside the notebooks.

The file is called `FILE` and has a `Progress`. It is in the folder of the lessons: the parent of the notebook's folder
if that is named after the lesson (`lesson.is_copy`), as nbgrader and ``fakegpu-lab lab`` arrange them, and otherwise
the notebook's folder. The environment variable ``FAKEGPU_LAB_PROGRESS`` names another file, or is ``off``. A grader's
runs are not saved.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fakegpu_lab.course import whole_file
from fakegpu_lab.course.lessons.lesson import is_copy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.course.checks.record import CheckRecord
    from fakegpu_lab.course.lessons.lesson import Lesson

FILE = "fakegpu-progress.json"
VARIABLE = "FAKEGPU_LAB_PROGRESS"


class Kept(BaseModel):
    """What is kept in a file; those of later versions can be read."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)


class ExerciseProgress(Kept):
    """A student's progress in one exercise."""

    title: str = ""
    points: float = Field(default=0, description="what the exercise is worth, hidden parts too")
    best: float = Field(default=0, description="the most points earned in a check")
    attempts: int = Field(default=0, description="checks of something that was written, up to the one that passed")
    hints: int = Field(default=0, description="hints that were looked at")
    solved: bool = Field(default=False, description="whether every part of a check was met once")


class LessonProgress(Kept):
    """A student's progress in one lesson."""

    title: str = ""
    points: float = Field(default=0, description="of all exercises")
    exercises: dict[str, ExerciseProgress] = Field(default_factory=dict, description="by their ids, in their order")
    predictions: dict[str, str] = Field(default_factory=dict, description="what the student expected, by ``%predict``")

    @property
    def earned(self) -> float:
        """The points earned so far."""
        return sum(one.best for one in self.exercises.values())

    @property
    def solved(self) -> int:
        """How many exercises are solved."""
        return sum(one.solved for one in self.exercises.values())


class Progress(Kept):
    """A student's progress in all lessons."""

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    lessons: dict[str, LessonProgress] = Field(default_factory=dict, description="by their names")


def path_for(lesson: str, folder: str | Path = ".") -> Path | None:
    """The file for a notebook in `folder`; None if progress is not saved."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == "off" or "NBGRADER_EXECUTION" in os.environ:
        return None
    if named:
        return Path(named)
    here = Path(folder).resolve()
    return (here.parent if is_copy(here.name, lesson) else here) / FILE


def read(path: Path) -> Progress:
    """Read a file; a missing or broken one counts as no progress."""
    try:
        return Progress.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return Progress()


def checked(path: Path, lesson: Lesson, record: CheckRecord) -> None:
    """Add the result of a check. The best result counts."""

    def note(one: ExerciseProgress) -> None:
        one.attempts += not (record.unsolved or one.solved)
        one.best = max(one.best, record.score)
        one.solved = one.solved or record.passed

    _change_exercise(path, lesson, record.exercise, note)


def hinted(path: Path, lesson: Lesson, exercise: str, number: int) -> None:
    """Note that the student has seen the hints up to `number`."""

    def note(one: ExerciseProgress) -> None:
        one.hints = max(one.hints, number)

    _change_exercise(path, lesson, exercise, note)


def predicted(path: Path, lesson: Lesson, name: str, text: str) -> None:
    """Keep what the student expects of the next cell."""
    _change(path, lesson, lambda done: done.predictions.update({name: text}))


def prediction(path: Path, lesson: str, name: str) -> str:
    """What the student expected; empty if nothing was saved."""
    return read(path).lessons.get(lesson, LessonProgress()).predictions.get(name, "")


def hints_seen(path: Path, lesson: str, exercise: str) -> int:
    """How many hints of an exercise the student has seen."""
    done = read(path).lessons.get(lesson, LessonProgress()).exercises.get(exercise)
    return done.hints if done is not None else 0


def forget(path: Path, lesson: str) -> bool:
    """Remove a lesson from a file; return whether it was there."""
    if not path.is_file():
        return False
    with _locked(path):
        progress = read(path)
        if progress.lessons.pop(lesson, None) is None:
            return False
        _write(path, progress)
    return True


def _change_exercise(path: Path, lesson: Lesson, exercise: str, note: Callable[[ExerciseProgress], None]) -> None:
    _change(path, lesson, lambda done: note(done.exercises.setdefault(exercise, ExerciseProgress())))


def _change(path: Path, lesson: Lesson, note: Callable[[LessonProgress], None]) -> None:
    """Read, change and write the file. Two notebooks of a folder lose nothing; a crash leaves the old file."""
    with _locked(path):
        _keep_broken(path)
        progress = read(path)
        kept = progress.lessons.get(lesson.name, LessonProgress())
        exercises = {one.id: kept.exercises.pop(one.id, ExerciseProgress()) for one in lesson.exercises}
        for one in lesson.exercises:
            exercises[one.id].title, exercises[one.id].points = one.title, one.points
        exercises.update(kept.exercises)  # those of an older edition of the lesson
        done = LessonProgress(
            title=lesson.title, points=lesson.points, exercises=exercises, predictions=kept.predictions
        )
        note(done)
        progress.lessons[lesson.name] = done
        _write(path, progress)


def _keep_broken(path: Path) -> None:
    """Rename a file that cannot be read, so that nothing of the student's is lost."""
    try:
        Progress.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValidationError, UnicodeDecodeError):
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(".broken.json"))


def _write(path: Path, progress: Progress) -> None:
    with whole_file.writing(path) as file:
        file.write(progress.model_dump_json(indent=1) + "\n")


@contextlib.contextmanager
def _locked(path: Path, patience: float = 2.0) -> Iterator[None]:
    """Keep other notebooks from writing. A lock that is left over after a crash is ignored after `patience` seconds."""
    lock = path.with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + patience
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL))
            break
        except FileExistsError:
            if time.monotonic() > until:
                break
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
