"""``fakegpu-lab lab``: the lessons, in JupyterLab."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from fakegpu_lab.course.lesson import shipped
from fakegpu_lab.hardware.errors import FakeGpuError


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
        for lesson in sorted(path for path in shipped().iterdir() if path.is_dir()):
            if not (target / lesson.name).exists():  # what a student wrote stays
                shutil.copytree(lesson, target / lesson.name, ignore=shutil.ignore_patterns(".*", "fakegpu-progress*"))
    except OSError as error:
        raise FakeGpuError(f"The lessons cannot be copied to {folder}: {error.strerror}.") from None
    try:
        return subprocess.call([sys.executable, "-m", "jupyterlab", *lab_args, str(target)])
    except KeyboardInterrupt:  # how JupyterLab is stopped
        return 0
