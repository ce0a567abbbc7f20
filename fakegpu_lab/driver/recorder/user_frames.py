"""Tells the user's frames from torch's, Python's and ours, and finds the frames of an optimizer's step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as torch_modules

from fakegpu_lab.user_code.environment import PACKAGE

if TYPE_CHECKING:
    from types import FrameType

    from fakegpu_lab.hardware.time.records import Stack

PLAIN, USERS, OPTIMIZERS, MODULES = range(4)
"""Kinds of files: all others, the user's program, torch's optimizers, `torch.nn.Module`."""

_TORCHS, _OURS, _PYTHONS = (
    str(Path(folder).resolve()) + os.sep for folder in (Path(torch.__file__).parent, PACKAGE, Path(os.__file__).parent)
)
"""Folders whose code is not the user's. (Lines of other packages, installed below Python's folder, are shown.)"""
_OPTIMIZERS = f"{_TORCHS}optim{os.sep}"
_MODULES = os.path.realpath(torch_modules.__file__)

_LAUNCHERS = tuple(f"{os.sep}site-packages{os.sep}{name}{os.sep}" for name in ("triton", "numba", "numba_cuda"))
"""Libraries that launch the user's own kernels: the line is that of the launch."""

_DEEPEST = 12
"""The most frames of a stack that are kept."""

kinds: dict[str, int] = {}
"""The kinds of files seen so far, for the recorded path; `kind_of` finds that of another."""


def is_users(filename: str) -> bool:
    """Whether a file is part of the user's program: neither torch's, nor ours, nor Python's."""
    known = kinds.get(filename)
    return (kind_of(filename) if known is None else known) == USERS


def kind_of(filename: str) -> int:
    """The kind of a file, which is noted in `kinds`."""
    path = filename if filename.startswith("<") else os.path.realpath(filename)
    users = not path.startswith(("<frozen", _TORCHS, _OURS)) and not path.endswith("typing_extensions.py")
    users = users and ("site-packages" in path or not path.startswith(_PYTHONS))
    users = users and not any(launcher in path for launcher in _LAUNCHERS)
    kind = USERS if users else OPTIMIZERS if path.startswith(_OPTIMIZERS) else MODULES if path == _MODULES else PLAIN
    kinds[filename] = kind
    return kind


def stack_of(frame: FrameType | None) -> Stack:
    """The user's frames from `frame` outwards, up to the cell or the script that was started."""
    found: list[tuple[str, str]] = []
    while frame is not None and len(found) < _DEEPEST:
        code = frame.f_code
        if is_users(code.co_filename):
            found.append((f"{code.co_filename}:{frame.f_lineno}", code.co_name))
            if code.co_name == "<module>":
                break
        frame = frame.f_back
    return tuple(found)
