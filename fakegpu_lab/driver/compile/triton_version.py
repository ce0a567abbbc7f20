"""Which versions of Triton the simulation can use, and what a student reads without one."""

from __future__ import annotations

import re
import sys
from importlib import metadata

OLDEST = (3, 9)
"""The oldest version of Triton whose interpreter the simulation can build on."""
NEWER = f"pip install 'triton>={'.'.join(map(str, OLDEST))}'"
"""Without this package's extra: PyTorch's CUDA builds name one older Triton, and pip would look for another torch."""


def too_old(version: str) -> bool:
    """Whether that version of Triton cannot be used."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST


def older(version: str) -> str:
    """What a student reads of that version of Triton."""
    oldest = ".".join(map(str, OLDEST))
    return f"Triton {version} is too old: simulated GPUs need {oldest} or newer. Run: {NEWER}, then restart the kernel."


def missing() -> str | None:
    """Why there is no Triton to compile with, in a sentence; None if there is one."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        if sys.platform != "linux":
            return "Triton, which compiles for GPUs, exists only for Linux."
        return f"Triton, which compiles for GPUs, is not installed. Run: {NEWER}, then restart the kernel."
    return older(version) if too_old(version) else None
