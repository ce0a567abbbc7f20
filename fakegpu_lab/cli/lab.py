"""``fakegpu-lab lab``: copies the lessons and opens JupyterLab on them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from fakegpu_lab.course.lessons import lesson_library
from fakegpu_lab.hardware.errors import FakeGpuError

CONFIGURATION = Path(__file__).with_name("jupyter")
"""Added to JupyterLab's own configuration: it turns off the question about Jupyter's news."""


def open_lab(folder: str, lab_args: tuple[str, ...]) -> int:
    """Copy the lessons that `folder` does not have yet, and open JupyterLab on one of them.

    At first that is lesson 1, later the first lesson without all points. `lab_args` are JupyterLab's own options.

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
    untouched = lesson_library.untouched(target)  # copies may be there from a run in which JupyterLab did not start
    lesson_library.fetch_all(target)  # what a student wrote stays
    lessons = lesson_library.listing(target)
    lesson = lessons[0] if untouched else next((one for one in lessons if one.earned < one.points), lessons[0])
    paths = [str(CONFIGURATION), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    environment = os.environ | {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}
    start_page = f"--LabApp.default_url=/lab/tree/{lesson.notebook}"
    print(f"JupyterLab opens {target / lesson.notebook} in your browser. Ctrl-C stops it.", flush=True)
    try:
        return subprocess.call(
            [sys.executable, "-m", "jupyterlab", start_page, *lab_args, str(target)], env=environment
        )
    except KeyboardInterrupt:  # how JupyterLab is stopped
        return 0
