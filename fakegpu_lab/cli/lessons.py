"""``fakegpu-lab lab``: the lessons, in JupyterLab."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import fakegpu_lab
from fakegpu_lab.hardware.errors import FakeGpuError


def lessons_dir() -> Path:
    """Return the folder of the lessons: inside an installed package, or beside it in a checkout."""
    package = Path(fakegpu_lab.__file__).resolve().parent
    for folder in (package / "lessons", package.parent / "lessons"):
        if folder.is_dir():
            return folder
    raise FakeGpuError(f"The lessons are missing from {package}: install fakegpu-lab again.")


def open_lab(folder: str, lab_args: tuple[str, ...]) -> int:
    """Copy the lessons that `folder` does not have yet, and open JupyterLab there.

    Raises
    ------
    FakeGpuError
        If JupyterLab is not installed, or the folder cannot be made.
    """
    if importlib.util.find_spec("jupyterlab") is None:
        raise FakeGpuError("JupyterLab is not installed here: pip install 'fakegpu-lab[lab]'")
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
        for lesson in sorted(lessons_dir().glob("*.ipynb")):
            if not (target / lesson.name).exists():  # what a student wrote stays
                shutil.copy(lesson, target)
    except OSError as error:
        raise FakeGpuError(f"The lessons cannot be copied to {folder}: {error.strerror}.") from None
    try:
        return subprocess.call([sys.executable, "-m", "jupyterlab", *lab_args, str(target)])
    except KeyboardInterrupt:  # how JupyterLab is stopped
        return 0
