"""The lessons that come with the package, and a student's copies of them.

A copy belongs to the student and is never overwritten. The folder has a hidden list (`LIST`) of the edition of each
copied lesson, so that a newer one can be offered; it goes beside the old one, into a folder named ``NAME.2``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fakegpu_lab.course import whole_file
from fakegpu_lab.course.lessons import lesson, progress
from fakegpu_lab.hardware.errors import FakeGpuError

LIST = ".fakegpu-lessons.json"
_LEFT_OUT = shutil.ignore_patterns(".*", "fakegpu-progress*", "__pycache__")


class Entry(BaseModel):
    """A lesson, and the student's progress in it."""

    model_config = ConfigDict(frozen=True)

    name: str
    title: str
    goal: str
    minutes: int
    track: str
    points: float
    exercises: int
    solved: int
    earned: float
    notebook: str
    """The path of the student's newest copy, from the folder; empty without one."""
    newer: bool
    """Whether the shipped lesson is another edition than that copy."""


def names() -> list[str]:
    """The names of the shipped lessons, in order."""
    return sorted(path.parent.name for path in lesson.shipped().glob(f"*/{lesson.FILE}"))


def listing(folder: str | Path = ".") -> list[Entry]:
    """All shipped lessons, with the student's copies and progress in `folder`."""
    here = Path(folder)
    done = progress.read(path) if (path := progress.path_for("", here)) is not None else progress.Progress()
    found = []
    for name in names():
        about = lesson.load(lesson.shipped() / name)
        own = done.lessons.get(name, progress.LessonProgress())
        copy = _newest(here, name)
        found.append(
            Entry(
                name=name, title=about.title, goal=about.goal, minutes=about.minutes, track=about.track,
                points=about.points, exercises=len(about.exercises), solved=own.solved, earned=own.earned,
                notebook=_notebook(copy, name).relative_to(here).as_posix() if copy is not None else "",
                newer=copy is not None and _is_older(here, copy, name),
            )
        )  # fmt: skip
    return found


def fetch(name: str, folder: str | Path = ".", *, newer: bool = False) -> str:
    """Copy a lesson, unless `folder` has a copy, and return its notebook's path from `folder`.

    Parameters
    ----------
    name
        The lesson's name.
    folder
        The student's folder of lessons.
    newer
        Whether to copy it even beside a copy of an older edition.

    Raises
    ------
    FakeGpuError
        There is no such lesson, or the folder is not writable.
    """
    here, source = Path(folder), _shipped(name)
    copy = _newest(here, name)
    if copy is None or (newer and _is_older(here, copy, name)):
        copy = _next_copy(here, name)
        try:
            _copy(source, copy)
            _list_edition(here, copy.name, _edition(source))
        except OSError as error:
            raise FakeGpuError(f"The lesson {name} cannot be copied to {here}: {error.strerror}.") from None
    return _notebook(copy, name).relative_to(here).as_posix()


def start_over(name: str, folder: str | Path = ".") -> str:
    """Give a lesson's newest copy a fresh notebook; return the path of the old one's backup, from `folder`.

    Raises
    ------
    FakeGpuError
        There is no such lesson or copy, or the folder is not writable.
    """
    here, source = Path(folder), _shipped(name)
    copy = _newest(here, name)
    if copy is None:
        raise FakeGpuError(f"The lesson {name} was never started in {here}, so there is nothing to start over.")
    notebook = _notebook(copy, name)
    number = 1
    while (backup := notebook.with_name(f"{name}.backup-{number}.ipynb")).exists():
        number += 1
    try:
        if notebook.exists():
            shutil.copy2(notebook, backup)
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            _replace(file, copy / file.relative_to(source))
        _list_edition(here, copy.name, _edition(source))
    except OSError as error:
        raise FakeGpuError(f"The lesson {name} cannot be started over in {here}: {error.strerror}.") from None
    return backup.relative_to(here).as_posix()


def fetch_all(folder: str | Path) -> None:
    """Copy every lesson that is not in `folder` yet.

    Raises
    ------
    FakeGpuError
        The folder is not writable.
    """
    for name in names():
        fetch(name, folder)


def untouched(folder: str | Path) -> bool:
    """Whether all copies in `folder` are as shipped, so that nobody has worked in them."""
    copies = {name: copy for name in names() if (copy := _newest(Path(folder), name)) is not None}
    return all(_edition(copy) == _edition(_shipped(name)) for name, copy in copies.items())


def _shipped(name: str) -> Path:
    if name not in names():
        raise FakeGpuError(f"There is no lesson {name!r}. Available: {', '.join(names())}.")
    return lesson.shipped() / name


def _notebook(copy: Path, name: str) -> Path:
    return copy / f"{name}.ipynb"


def _copies(folder: Path, name: str) -> list[tuple[int, Path]]:
    pattern = re.compile(rf"{re.escape(name)}(?:\.(\d+))?")
    found = [(path, pattern.fullmatch(path.name)) for path in folder.glob(f"{name}*") if path.is_dir()]
    return sorted((int(match[1] or 1), path) for path, match in found if match is not None)


def _newest(folder: Path, name: str) -> Path | None:
    copies = _copies(folder, name)
    return copies[-1][1] if copies else None


def _next_copy(folder: Path, name: str) -> Path:
    copies = _copies(folder, name)
    return folder / (f"{name}.{copies[-1][0] + 1}" if copies else name)


def _edition(source: Path) -> str:
    """A hash that identifies an edition of a lesson."""
    digest = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file() and not path.name.startswith(".")):
        digest.update(file.relative_to(source).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _is_older(folder: Path, copy: Path, name: str) -> bool:
    source = lesson.shipped() / name
    listed = _listed_editions(folder).get(copy.name)
    if listed is not None:
        return listed != _edition(source)
    # Copied by hand, or before there was a list: compare the file that students do not change.
    try:
        return (copy / lesson.FILE).read_bytes() != (source / lesson.FILE).read_bytes()
    except OSError:
        return False


def _listed_editions(folder: Path) -> dict[str, str]:
    try:
        content = json.loads((folder / LIST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): str(edition) for name, edition in content.items()} if isinstance(content, dict) else {}


def _list_edition(folder: Path, name: str, edition: str) -> None:
    with whole_file.writing(folder / LIST) as file:
        file.write(json.dumps({**_listed_editions(folder), name: edition}, indent=1) + "\n")


def _copy(source: Path, target: Path) -> None:
    """Copy a folder completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fakegpu-") as made:
        shutil.copytree(source, Path(made) / target.name, ignore=_LEFT_OUT)
        for path in (Path(made) / target.name).rglob("*"):
            path.chmod(path.stat().st_mode | 0o200)  # an installed package may be read-only
        (Path(made) / target.name).rename(target)


def _replace(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=".fakegpu-")
    os.close(handle)
    shutil.copyfile(source, name)
    Path(name).chmod(0o644)
    Path(name).replace(target)
