"""``fakegpu-lab lab``: the lessons, in JupyterLab."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from fakegpu_lab.course import shelf
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
    except OSError as error:
        raise FakeGpuError(f"The lessons cannot be copied to {folder}: {error.strerror}.") from None
    shelf.fetch_all(target)  # what a student wrote stays
    try:
        return subprocess.call([sys.executable, "-m", "jupyterlab", *lab_args, str(target)])
    except KeyboardInterrupt:  # how JupyterLab is stopped
        return 0
