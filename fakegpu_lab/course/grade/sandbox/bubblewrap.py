"""Bubblewrap's command line, where it is installed and may do its work: a file system with only what is named.

Where it may not, `confine` makes the namespaces itself, and hides what is not the submission's.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path

from fakegpu_lab.course.grade.sandbox.hidden import SYSTEM
from fakegpu_lab.course.grade.sandbox.limits import MIB

IN_FORCE = ("processes of its own", "no network", "a file system of its own", "bubblewrap")
"""What a submission under it has."""


def command(folder: Path, needed: list[str], hide: list[str], others: list[str]) -> list[str] | None:
    """Return the words that come before a program and its arguments; None where bubblewrap does not work.

    Parameters
    ----------
    folder
        The submission's, and the only one that it may write to.
    needed
        Without these, Python and this package do not run.
    hide, others
        What must not be seen, even inside of those, and inside of the system's folders.
    """
    program = _working()
    if program is None:
        return None
    words = [program, *_OPTIONS]
    for name in sorted(SYSTEM - {"dev", "proc"}):
        words += ["--ro-bind-try", f"/{name}", f"/{name}"]
    words += _empty([path for path in others if Path(path).parts[1] in SYSTEM])
    for path in needed:
        words += ["--ro-bind-try", path, path]
    shown = [Path(f"/{name}") for name in SYSTEM] + [Path(path) for path in needed]
    words += _empty([path for path in hide if any(one in Path(path).parents for one in shown)])
    words += ["--bind", str(folder), str(folder), "--chdir", str(folder), "--remount-ro", "/"]
    return words


_OPTIONS = (
    *("--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
    *("--dev", "/dev", "--size", str(256 * MIB), "--tmpfs", "/dev/shm", "--proc", "/proc"),
)
"""DataLoader's workers need /dev/shm."""


def _empty(paths: list[str]) -> list[str]:
    """Put an empty folder, or nothing, in the place of each path."""
    words: list[str] = []
    for path in paths:
        if not set(paths).isdisjoint(map(str, Path(path).parents)):
            continue  # gone with the folder around it
        if Path(path).is_dir():
            words += ["--tmpfs", path, "--remount-ro", path]
        else:
            words += ["--ro-bind", "/dev/null", path]
    return words


@functools.cache
def _working() -> str | None:
    """The program, if it is installed, and the system lets it do what we ask of it."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    trial = [program, "--ro-bind", "/", "/", *_OPTIONS, "--remount-ro", "/", "true"]
    try:
        done = subprocess.run(trial, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return program if done.returncode == 0 else None
