"""Libraries that a lesson or an exercise needs beyond torch, and what is said where they are not installed.

``needs`` in ``lesson.yaml`` names them, for the whole lesson or for single exercises. Where one is missing, a notebook
skips what needs it and says so. Grading and ``fakegpu-lab lesson check`` do not begin: they would only count exercises
as wrong that nobody could have solved there.
"""

from __future__ import annotations

import importlib.util
import platform
from importlib import metadata
from typing import TYPE_CHECKING

from fakegpu_lab.driver.compile.triton_version import older, too_old
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.course.lessons.lesson import Lesson

_MODULES: dict[str, tuple[str, ...]] = {"numba": ("numba", "greenlet"), "triton": ("triton",)}
NAMES = {"numba": "numba", "triton": "Triton"}


def missing(needs: Iterable[str]) -> list[str]:
    """Those of the extras that are not installed, or too old."""
    return [
        one
        for one in needs
        if any(importlib.util.find_spec(module) is None for module in _MODULES[one]) or (one == "triton" and _older())
    ]


def _older() -> str:
    """What is said of the installed Triton if it is too old; else empty."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""
    return older(version) if too_old(version) else ""


def sentence(needs: list[str]) -> str:
    """What is missing, and how to get it."""
    if "triton" in needs and (text := _older()):
        others = [one for one in needs if one != "triton"]
        return f"{sentence(others)} {text}" if others else text
    names = " and ".join(NAMES[one] for one in needs)
    are = f"{names} {'are' if len(needs) > 1 else 'is'} not installed here"
    if "triton" in needs and platform.system() != "Linux":
        elsewhere = (
            "in WSL, or on a computer with Linux" if platform.system() == "Windows" else "on a computer with Linux"
        )
        return (
            f"{are}: Triton is available only for Linux. You can do this part {elsewhere}, "
            "such as your course's JupyterHub."
        )
    return f"{are}: pip install 'fakegpu-lab[{','.join(needs)}]', then restart the kernel."


def require(lesson: Lesson) -> None:
    """Check that everything is installed that the lesson and its exercises need.

    Raises
    ------
    FakeGpuError
        Something is not.
    """
    absent = missing(lesson.all_needs)
    if absent:
        raise FakeGpuError(f"The lesson {lesson.name} cannot run here, so nothing was graded: {sentence(absent)}")
