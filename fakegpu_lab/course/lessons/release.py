"""Makes ``lessons/release`` from ``lessons/source``: nbgrader's preprocessors remove solutions and hidden parts."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

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
    return notebook


def text(notebook: Any) -> str:
    """Return a notebook as file contents: as Jupyter writes it, the same on every system."""
    return str(nbformat.writes(notebook)) + "\n"


def _is_lessons(inside: Path) -> bool:
    """Whether a file belongs to a lesson: neither hidden nor what Python leaves behind."""
    return not any(part.startswith(".") or part == "__pycache__" for part in inside.parts)


def release(folder: Path, into: Path) -> list[Path]:
    """Write a lesson's released notebook and its other files to `into`; return what was written.

    What the notebook writes itself when it runs (``%%writefile``) is left out. Notebooks in `into` that no longer
    have a source are deleted.
    """
    written = []
    into.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_lessons(path.relative_to(folder))]
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
    """Nbgrader's hook after ``generate_assignment``: removes the author's wrong solutions from ``lesson.yaml``.

    nbgrader copies that file unchanged; see ``lessons/nbgrader_config.py``.
    """
    for path in Path("release").glob(f"{assignment}/{lesson.FILE}"):
        path.write_text(lesson.load(path.parent).released().dump(), encoding="utf-8", newline="\n")
