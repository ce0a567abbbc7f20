"""The folder in which a user's processes with simulated GPUs find each other, inside the system's runtime folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from pathlib import Path

from fakegpu_lab.user_code.environment import IDENTITY, MACHINE

VARIABLE = "FAKEGPU_LAB_RUNTIME"
"""Environment variable with another folder: for tests, and where the usual ones cannot be written."""


def identity() -> str:
    """The name of the machine, the same in all processes that share it; empty without a machine."""
    return os.environ.get(IDENTITY, "") if MACHINE in os.environ else ""


def runtime() -> Path | None:
    """The folder, made if it is missing; None if there is none that only this user can write to."""
    if VARIABLE in os.environ:
        candidates = [Path(os.environ[VARIABLE])]
    else:
        candidates = [Path(os.environ["XDG_RUNTIME_DIR"]) / "fakegpu_lab"] if os.environ.get("XDG_RUNTIME_DIR") else []
        candidates.append(Path(tempfile.gettempdir()) / f"fakegpu_lab-{_user()}")
    for folder in candidates:
        with contextlib.suppress(OSError):
            if make_private(folder):
                return folder
    return None


def _user() -> str:
    try:
        return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "user"


def make_private(folder: Path) -> bool:
    """Make a folder if it is missing; return whether only this user can put files there.

    In a shared folder, another user could have made it, or a link to one that this user owns.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "getuid"):
        return os.access(folder, os.W_OK)
    stat, itself = folder.stat(), folder.lstat()
    own = stat.st_uid == itself.st_uid == os.getuid()
    return own and not stat.st_mode & 0o022 and os.access(folder, os.W_OK)
