"""What a student chose to share with the instructor in the room: progress and failed expectations, never code.

``%share FOLDER`` begins it. From then on, each check writes one file into that folder: which exercise, how many
attempts, which sentences of the lesson's checks were not met. What was found, in which line, and what the student
predicted stay at home. The file's name ends in random letters, because everyone may write to the folder and only the
instructor may list it (``chmod 1733``). The instructor's page takes the student's name from the file system, not from
what the file says.
"""

from __future__ import annotations

import getpass
import os
import secrets
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationError

from fakegpu_lab.course.lessons import progress
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.course.checks.record import CheckRecord
    from fakegpu_lab.course.lessons.lesson import Lesson

FILE = "fakegpu-sharing.json"
"""Beside the progress: where it is shared. Without it, nothing is."""

NOTHING = "Nothing is shared. Run %share FOLDER to start; your instructor knows the folder."
SUFFIX = ".class.json"
LARGEST = 2**20
"""Bytes of what one student shares."""


class SharedExercise(progress.ExerciseProgress):
    """How a student is doing in one exercise."""

    unmet: dict[str, int] = Field(default_factory=dict, description="how often each sentence of the check was not met")


class Shared(progress.Kept):
    """What is shared of one student.

    Attributes
    ----------
    lesson, exercise
        What was checked last.
    when
        Seconds since 1970.
    """

    version: int = 1
    lesson: str = ""
    exercise: str = ""
    when: float = 0
    lessons: dict[str, dict[str, SharedExercise]] = Field(default_factory=dict)


class _Setting(progress.Kept):
    file: str


def begin(folder: str, home: Path) -> str:
    """Share from now on; return the sentence that says so. `home` is the folder of the lessons.

    Raises
    ------
    FakeGpuError
        There is no folder, or it cannot be written to.
    """
    file = Path(folder).resolve() / f"{_user()}-{secrets.token_hex(8)}{SUFFIX}"
    stop(home)
    try:
        _write(file, Shared())
        (home / FILE).write_text(_Setting(file=str(file)).model_dump_json(), encoding="utf-8")
    except OSError as error:
        raise FakeGpuError(f"Nothing is shared: {error.filename} cannot be written ({error.strerror}).") from None
    return (
        f"From now on, {folder} shows which exercise you are on, how many attempts you made, and which of the check's "
        "sentences were not met. Your code is not shared. %share off stops sharing and deletes what was shared."
    )


def stop(home: Path) -> str:
    """End sharing, and delete what was shared; return a sentence."""
    setting = _setting(home)
    if setting is None:
        return "Nothing was shared."
    (home / FILE).unlink(missing_ok=True)
    try:
        Path(setting.file).unlink(missing_ok=True)
    except OSError as error:
        return f"Nothing more is shared. What was shared could not be deleted: {setting.file} ({error.strerror})."
    return "Nothing more is shared, and what was shared is deleted."


def state(home: Path) -> str:
    """Say whether anything is shared."""
    setting = _setting(home)
    return NOTHING if setting is None else f"Shared with {Path(setting.file).parent}."


def checked(path: Path, lesson: Lesson, record: CheckRecord) -> None:
    """Share the result of a check, if the student shares; `path` is the file of the progress.

    A folder that is gone stops nobody's work.
    """
    setting = _setting(path.parent)
    if setting is None:
        return
    file = Path(setting.file)
    shared = read(file) or Shared()
    shared.lesson, shared.exercise, shared.when = lesson.name, record.exercise, time.time()
    done = progress.read(path).lessons.get(lesson.name, progress.LessonProgress())
    before = shared.lessons.get(lesson.name, {})
    now = {
        name: SharedExercise(**one.model_dump(), unmet=before[name].unmet if name in before else {})
        for name, one in done.exercises.items()
    }
    if record.exercise in now:
        unmet = now[record.exercise].unmet
        for part in record.parts:
            if not (part.met or part.hidden or record.unsolved):
                unmet[part.what] = unmet.get(part.what, 0) + 1
    shared.lessons[lesson.name] = now
    try:
        _write(file, shared)
    except OSError:
        return


def read(file: Path) -> Shared | None:
    """Read what one student shares; None if that is nothing readable."""
    found = read_with_owner(file)
    return found[0] if found is not None else None


def read_with_owner(file: Path) -> tuple[Shared, int] | None:
    """Read what one student shares, and the number of the user whose file it is.

    Everyone may write to the folder, so a link, a pipe or a huge file could be in it: only small ordinary files are
    read.
    """
    try:
        handle = os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
                return None
            return Shared.model_validate_json(opened.read(LARGEST)), about.st_uid
    except (OSError, ValidationError):
        return None


def _setting(home: Path) -> _Setting | None:
    try:
        found = _Setting.model_validate_json((home / FILE).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
    return found if found.file.endswith(SUFFIX) else None


def _write(file: Path, shared: Shared) -> None:
    """Write in place: the folder's other files cannot be listed, so that no temporary name is safe in it."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as open_file:
        open_file.write(shared.model_dump_json())


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "student"
