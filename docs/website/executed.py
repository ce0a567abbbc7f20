"""A lesson's notebook, executed for the website, without its solutions.

The source is executed, with its solutions, because what follows an exercise builds on them. Then each cell gets the
text that students get (nbgrader removes solutions and hidden tests). The outputs of exercises and checks are left out;
in all other outputs, lines of a solution (a figure shows the code that launched a kernel) are replaced by `HIDDEN`.
"""

from __future__ import annotations

import copy
import hashlib
import html
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

import fakegpu_lab
from fakegpu_lab.course.lessons import extras
from fakegpu_lab.course.lessons.lesson import load
from fakegpu_lab.course.lessons.release import released

CACHE = Path(__file__).resolve().parents[1] / ".executed"
"""Executed notebooks, without solutions, by a digest of what they were made of."""

PACKAGE = Path(fakegpu_lab.__file__).parent

HIDDEN = "(a line of the solution)"
LEAST = 8
"""A line of a solution that is shorter, such as ``else:``, gives nothing away."""

_MARKED = re.compile(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", re.DOTALL)
_SECONDS = 300


def executed(source: Path) -> tuple[Any, str]:
    """The executed notebook as the website shows it, and a sentence if it could not be executed here.

    Raises
    ------
    CellExecutionError
        A cell fails.
    """
    missing = extras.missing(load(source.parent).all_needs)
    if missing:
        return unexecuted(source), f"This page has no outputs: {missing[0]} is not installed where it was made."
    cached = CACHE / f"{source.stem}-{digest(*_files(source.parent))}.ipynb"
    if not cached.is_file():
        shown = without_solutions(_run(source), nbformat.read(source, as_version=4))
        CACHE.mkdir(exist_ok=True)
        for old in CACHE.glob(f"{source.stem}-*.ipynb"):
            old.unlink()
        nbformat.write(shown, cached)
    return nbformat.read(cached, as_version=4), ""


def unexecuted(source: Path) -> Any:
    """The notebook as students get it."""
    return released(nbformat.read(source, as_version=4))


def without_solutions(run: Any, source: Any) -> Any:
    """The released notebook, with those outputs of an executed source that do not belong to exercises and checks."""
    shown = released(source)
    secrets = solution_lines(source)
    for ours, theirs in zip(shown.cells, run.cells, strict=True):
        if ours.cell_type == "code" and not _of_an_exercise(ours):
            ours.outputs = [_hidden(output, secrets) for output in theirs.outputs]
    return shown


def solution_lines(source: Any) -> list[str]:
    """The lines of a source notebook that students must not see: those of the solutions that stand nowhere else."""
    shown = "\n".join(cell.source for cell in released(source).cells)
    shown += shown.replace("`", "")  # a text may say: return `a.method(b)`
    texts = [cell.source for cell in source.cells if cell.cell_type == "code"]
    marked = [part for text in texts for part in _MARKED.findall(text)]
    lines = {line.strip() for part in marked for line in part.splitlines()}
    return sorted((line for line in lines if len(line) >= LEAST and line not in shown), key=len, reverse=True)


def _of_an_exercise(cell: Any) -> bool:
    """Whether students write this cell, or it checks what they wrote."""
    of_nbgrader = cell.metadata.get("nbgrader", {})
    return bool(of_nbgrader.get("grade") or of_nbgrader.get("solution"))


def _hidden(value: Any, secrets: list[str]) -> Any:
    """A copy of an output, whose texts have no lines of solutions and no folder of this computer."""
    if isinstance(value, str):
        for secret in secrets:
            for form in {secret, html.escape(secret), html.escape(secret, quote=False)}:
                value = _cut(value, form)
        return without_folders(value)
    if isinstance(value, dict):
        return type(value)({key: _hidden(one, secrets) for key, one in value.items()})
    if isinstance(value, list):
        return [_hidden(one, secrets) for one in value]
    return copy.deepcopy(value)


def without_folders(text: str) -> str:
    """A text with short paths of Python's environment; columns to the right of a path stay where they were."""
    path = re.compile(re.escape(sys.prefix) + r"(\S*)( {2,})?")
    return path.sub(lambda found: f".venv{found[1]}".ljust(len(found[0]) if found[2] else 0), text)


def _cut(text: str, secret: str) -> str:
    """Replace a line, also where only its beginning is shown."""
    begin = secret[:20]
    place = text.find(begin)
    while place >= 0:
        length = next((n for n, (a, b) in enumerate(zip(text[place:], secret, strict=False)) if a != b), None)
        length = min(len(secret), len(text) - place) if length is None else length
        text = text[:place] + HIDDEN + text[place + length :]
        place = text.find(begin, place + len(HIDDEN))
    return text


def _run(source: Path) -> Any:
    """Execute a notebook in a copy of its folder."""
    notebook = nbformat.read(source, as_version=4)
    paths = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "FAKEGPU_LAB_PROGRESS": "off", "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as text:
        folder = Path(text) / source.parent.name
        shutil.copytree(source.parent, folder)
        client = NotebookClient(notebook, timeout=_SECONDS, resources={"metadata": {"path": str(folder)}})
        client.execute(env=environment, stderr=subprocess.DEVNULL)  # the kernel's own remarks
    return notebook


def digest(*files: Path) -> str:
    """Of everything that decides what a program in these files prints."""
    found = hashlib.sha256(f"{_environment()} {_package()}".encode())
    for path in files:
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _environment() -> str:
    versions = {name: metadata.version(name) for name in ("torch", "plotly", "nbgrader")}
    return f"{platform.python_version()} {versions} {[name for name in ('triton', 'numba') if find_spec(name)]}"


@lru_cache(maxsize=1)
def _package() -> str:
    found = hashlib.sha256()
    for path in (*_files(PACKAGE), *_files(PACKAGE.parent / "profiles"), Path(__file__)):
        found.update(path.read_bytes())
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
