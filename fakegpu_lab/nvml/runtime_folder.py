"""The folder where processes with simulated GPUs find each other: one for each user, in the system's runtime folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
from pathlib import Path

from fakegpu_lab.user_code.environment import IDENTITY, MACHINE

VARIABLE = "FAKEGPU_LAB_RUNTIME"
"""Names another folder: for tests, and where the usual ones cannot be written."""


def identity() -> str:
    """What all processes of one machine call it; empty without one."""
    return os.environ.get(IDENTITY, "") if MACHINE in os.environ else ""


def runtime() -> Path | None:
    """The folder, made if it is missing; None where there is no place for it that is the user's own."""
    if VARIABLE in os.environ:
        places = [Path(os.environ[VARIABLE])]
    else:
        places = [Path(os.environ["XDG_RUNTIME_DIR"]) / "fakegpu_lab"] if os.environ.get("XDG_RUNTIME_DIR") else []
        places.append(Path(tempfile.gettempdir()) / f"fakegpu_lab-{_user()}")
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(place):
                return place
    return None


def _user() -> str:
    try:
        return str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "user"


def _is_ours(place: Path) -> bool:
    """Whether nobody else can put files there: in a common folder, another user could have made it."""
    if not hasattr(os, "getuid"):
        return os.access(place, os.W_OK)
    about = place.stat()
    return about.st_uid == os.getuid() and not about.st_mode & 0o022 and os.access(place, os.W_OK)
