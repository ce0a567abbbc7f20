"""Makes ``lessons/release`` from ``lessons/source``: nbgrader's preprocessors remove solutions and hidden parts.

Each version that is handed out is kept, to grade by: ``versions/HASH/LESSON`` in the folder that has ``source/`` is a
copy of the lesson's source. The hash leaves out texts and the code of checks: who corrects a check has not made another
version, and grades everybody by the corrected one.
"""

from __future__ import annotations

import copy
import datetime as dt
import hashlib
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import nbformat

from fakegpu_lab.course.cell_text.source import written_file
from fakegpu_lab.course.lessons import lesson
from fakegpu_lab.hardware.errors import FakeGpuError

_PREPROCESSORS = (
    "LockCells",
    "ClearSolutions",
    "ClearOutput",
    "CheckCellMetadata",
    "ComputeChecksums",
    "ClearHiddenTests",
    "ClearMarkScheme",
    "ComputeChecksums",
    "CheckCellMetadata",
)
"""Those of GenerateAssignment (nbgrader/converters/generate_assignment.py), except the ones that need nbgrader's
database, a header, or templates of tests."""


def preprocessors(config: Any = None) -> list[Any]:
    """Return the preprocessors with which nbgrader releases a notebook.

    Raises
    ------
    FakeGpuError
        nbgrader is not installed.
    """
    try:
        from nbgrader import preprocessors as nbgraders
    except ImportError:
        raise FakeGpuError("nbgrader is not installed here: pip install 'fakegpu-lab[course]'") from None
    instances = [getattr(nbgraders, name)(config=config) for name in _PREPROCESSORS]
    for preprocessor in instances:
        preprocessor.log = _LOG
    return instances


_LOG = logging.getLogger("fakegpu_lab.course.release")
_LOG.addHandler(logging.NullHandler())
_LOG.propagate = False


def released(source: Any) -> Any:
    """Return a source notebook as students get it; `source` stays as it is.

    Raises
    ------
    FakeGpuError
        The notebook's nbgrader metadata or markers are wrong.
    """
    notebook = copy.deepcopy(source)
    resources: dict[str, Any] = {}
    try:
        for preprocessor in preprocessors():
            notebook, resources = preprocessor.preprocess(notebook, resources)
    except FakeGpuError:
        raise
    except Exception as error:
        raise FakeGpuError(f"nbgrader refuses the notebook ({type(preprocessor).__name__}): {error}") from None
    notebook.metadata.pop("widgets", None)
    return _folded(notebook)


def _folded(notebook: Any) -> Any:
    """Fold the checks of a notebook: what they compare is not read by accident."""
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("%%check "):
            cell.metadata["jupyter"] = {"source_hidden": True}
    return notebook


def text(notebook: Any) -> str:
    """Return a notebook as file contents: as Jupyter writes it, the same on every system."""
    return str(nbformat.writes(notebook)) + "\n"


def belongs(inside: Path) -> bool:
    """Whether a file belongs to a lesson: neither hidden nor what Python leaves behind."""
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.parts)


def release(folder: Path, into: Path) -> list[Path]:
    """Write a lesson's released notebook and its other files to `into`; return what was written.

    What the notebook writes itself when it runs (``%%writefile``) is left out. Notebooks in `into` that no longer
    have a source are deleted.
    """
    written = []
    into.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and belongs(path.relative_to(folder))]
    notebooks = {path: nbformat.read(path, as_version=4) for path in paths if path.suffix == ".ipynb"}
    made = {
        path.parent / found[0]
        for path, notebook in notebooks.items()
        for cell in notebook.cells
        if cell.cell_type == "code" and (found := written_file(cell.source))
    }
    for path in paths:
        if path in made:
            continue
        target = into / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in notebooks:
            target.write_text(text(released(notebooks[path])), encoding="utf-8", newline="\n")
        elif path.name == lesson.FILE:
            target.write_text(lesson.load(folder).released().dump(), encoding="utf-8", newline="\n")
        else:
            target.write_bytes(path.read_bytes())
        written.append(target)
    kept = set(written)
    for old in into.glob("*.ipynb"):
        if old not in kept:
            old.unlink()
    return written


class Version(NamedTuple):
    """A version that was kept: its source's folder, its hash, and the day of its first release."""

    folder: Path
    digest: str
    date: str


def digest(folder: Path) -> str:
    """A hash of what students run of a lesson: its code other than checks, its files, and what is worth points."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and belongs(inside) and inside.name != lesson.FILE:
            raw = path.read_bytes()
            parts = _what_runs(released(nbformat.reads(raw.decode(), 4))) if path.suffix == ".ipynb" else [raw.hex()]
            found.update(repr([inside.as_posix(), *parts]).encode())
    return found.hexdigest()[:12]


def _what_runs(notebook: Any) -> list[Any]:
    found = []
    for cell in notebook.cells:
        mark = cell.metadata.get("nbgrader", {})
        check = mark.get("grade") and not mark.get("solution")
        if cell.cell_type == "code" or mark:
            found.append((mark.get("grade_id"), mark.get("points"), "" if check else cell.source))
    return found


def keep(folder: Path) -> str:
    """Keep a lesson as it is now, in the place of the same version; return the hash. Only ``source/`` is kept."""
    folder = folder.resolve()
    if folder.parent.name != "source":
        return ""
    name = digest(folder)
    target = folder.parent.parent / VERSIONS / name / folder.name
    date = target / _DATE
    first = date.read_text(encoding="utf-8") if date.is_file() else str(dt.datetime.now().date())
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    date.write_text(first, encoding="utf-8")
    return name


def kept(folder: Path) -> list[Version]:
    """The versions of a lesson that were kept, the latest first."""
    folder = folder.resolve()
    found = [
        Version(path, path.parent.name, (path / _DATE).read_text(encoding="utf-8").strip())
        for path in (folder.parent.parent / VERSIONS).glob(f"*/{folder.name}")
        if (path / _DATE).is_file()
    ]
    return sorted(found, key=lambda one: (one.date, one.digest), reverse=True)


VERSIONS = "versions"
_DATE = ".released"


def clean(path: Path) -> bool:
    """Remove from a source notebook what running it left there; return whether there was anything."""
    before = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(before, as_version=4)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        for name in ("execution", "collapsed", "scrolled", "jupyter"):
            cell.metadata.pop(name, None)
    after = text(notebook)
    if after != before:
        path.write_text(after, encoding="utf-8", newline="\n")
    return after != before


def after_feedback(assignment: str, student: str, notebooks: list[str]) -> None:
    """Nbgrader's hook after ``generate_feedback``: removes ``lesson.yaml``, which has the author's wrong solutions.

    nbgrader copies it from the source by way of ``autograded``; see ``lessons/nbgrader_config.py``.
    """
    for path in Path("feedback").glob(f"*/{assignment}/{lesson.FILE}"):
        path.unlink()


def after_nbgrader(assignment: str, student: str, notebooks: list[str]) -> None:
    """Nbgrader's hook after ``generate_assignment``: folds checks, removes wrong solutions from ``lesson.yaml``.

    nbgrader copies that file unchanged; see ``lessons/nbgrader_config.py``. The version is kept.
    """
    if (Path("source") / assignment).is_dir():
        keep(Path("source") / assignment)
    for path in Path("release").glob(f"{assignment}/{lesson.FILE}"):
        path.write_text(lesson.load(path.parent).released().dump(), encoding="utf-8", newline="\n")
        for made in path.parent.glob("*.ipynb"):
            folded = _folded(nbformat.read(made, as_version=4))
            made.write_text(text(folded), encoding="utf-8", newline="\n")
