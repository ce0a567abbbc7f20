"""Empties the frames that the error of a rank keeps alive: a process that fails gives its memory back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fakegpu_lab.user_code.frames import steps, walk

if TYPE_CHECKING:
    from types import FrameType


def forget(error: BaseException | None) -> None:
    """Empty the frames of an error and of what caused it: a process that fails gives its memory back, too."""
    while error is not None:
        for step in steps(error.__traceback__):
            _empty(step.tb_frame)
        error = error.__cause__ or error.__context__


def forget_rank(error: BaseException) -> None:
    """The same for the error of a rank, whose thread has ended: also the frames that a traceback no longer shows."""
    shown = [step.tb_frame for step in steps(error.__traceback__)]
    forget(error)
    for frame in walk(shown[-1] if shown else None):
        _empty(frame)


def _empty(frame: FrameType) -> None:
    """Clear a frame's variables, and their copy in `f_locals`, which whoever shows a traceback reads (IPython does)."""
    with suppress(RuntimeError):  # it still runs
        frame.clear()
        _ = frame.f_locals  # before Python 3.13, this brings the copy up to date
