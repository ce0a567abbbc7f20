"""Tracebacks of errors in a rank: they end at the user's own line, and give the rank's memory back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fakegpu_lab.driver.recorder.user_frames import is_users
from fakegpu_lab.user_code.environment import DEBUG, PACKAGE

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_HERE = str(PACKAGE / "ranks")


def end_at_users_line(error: BaseException) -> None:
    """Remove the frames below the user's last line, if this package raised the error."""
    if DEBUG:
        return
    last: TracebackType | None = None
    users: TracebackType | None = None
    step = error.__traceback__
    while step is not None:
        last = step
        if is_users(step.tb_frame.f_code.co_filename):
            users = step
        step = step.tb_next
    if last is not None and users is not None and last.tb_frame.f_code.co_filename.startswith(_HERE):
        users.tb_next = None


def forget(error: BaseException | None) -> None:
    """Empty the frames of an error and of what caused it: a process that fails gives its memory back, too."""
    while error is not None:
        step = error.__traceback__
        while step is not None:
            _empty(step.tb_frame)
            step = step.tb_next
        error = error.__cause__ or error.__context__


def forget_rank(error: BaseException) -> None:
    """The same for the error of a rank, whose thread has ended: also the frames that a traceback no longer shows."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    frame = step.tb_frame if step is not None else None
    forget(error)
    while frame is not None:
        _empty(frame)
        frame = frame.f_back


def _empty(frame: FrameType) -> None:
    """Clear a frame's variables, and their copy in `f_locals`, which whoever shows a traceback reads (IPython does)."""
    with suppress(RuntimeError):  # it still runs
        frame.clear()
        _ = frame.f_locals  # before Python 3.13, this brings the copy up to date
