"""Warnings that name the user's line, where C++ or this package issues them.

C++ gives a warning the line of the Python frame that called it. On a real GPU that is the user's line, or a library's.
Here our frames are in between: the dispatcher calls the CPU's kernels, and these warn. So a warning of one of our
lines goes, when it is shown, to the nearest caller that is not ours, with that caller's filters, and its registry of
what was shown before.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code.frames import OURS, innermost, kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


def warn(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line, as C++'s ``TORCH_WARN`` does on a real GPU."""
    _warn_at(_caller(), text, category)


def install(patches: Any) -> None:
    """Let `patches` change the function that shows a warning which has passed the filters."""
    patches.set(warnings, "_showwarnmsg", _shown_at_callers(vars(warnings)["_showwarnmsg"]))


def _shown_at_callers(show: Callable[[Any], None]) -> Callable[[Any], None]:
    """`show`, Python's ``warnings._showwarnmsg``; a warning of one of our lines goes to our caller's line instead."""

    def showwarnmsg(message: Any) -> None:
        caller = _caller() if kind(message.filename) == OURS else None
        if caller is None:
            show(message)
            return
        # Python has noted that our line has warned; another line of the user's may warn through it.
        sys._getframe(1).f_globals.get("__warningregistry__", {}).clear()
        _warn_at(caller, message.message, message.category)

    return showwarnmsg


def _caller() -> FrameType | None:
    """The nearest calling frame that is not ours; None if there is none."""
    return innermost(sys._getframe(1), ~OURS)


def _warn_at(frame: FrameType | None, message: Warning | str, category: type[Warning]) -> None:
    if frame is None:
        frame = sys._getframe()
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    name = names.get("__name__") or "<unknown>"
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, name, registry)
