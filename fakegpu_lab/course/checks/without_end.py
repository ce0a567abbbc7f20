"""A statement of a check ends, also if an answer's loop does not: after a minute of processor time it is stopped."""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from typing import TYPE_CHECKING

from fakegpu_lab.user_code.frames import walk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

SECONDS = 60
"""The processor time that a statement has; it begins again if torch's compiler runs then, which ends by itself."""
LATER = 10
"""The same, once a statement of the check had no end: the others may call the same loop."""
_AGAIN = 5
"""Seconds until it is stopped once more: an answer's ``except:`` may have caught the first error."""
_COMPILER = ("/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/")
"""Parts of the paths of its files."""


class WithoutEndError(KeyboardInterrupt):
    """A statement of a check had no end. It stops what runs as a press of Stop does."""


@contextlib.contextmanager
def stopped_in_time(seconds: float) -> Iterator[None]:
    """Raise `WithoutEndError` when a statement has used these seconds of processor time.

    Only on the main thread, and where the system has such a timer (not on Windows); a program that uses it keeps it.
    """
    alarm = getattr(signal, "SIGVTALRM", None)
    main = threading.current_thread() is threading.main_thread()
    if alarm is None or not main or signal.getsignal(alarm) is not signal.SIG_DFL:
        yield
        return
    signal.signal(alarm, functools.partial(_stop, seconds))
    _begin(seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(alarm, signal.SIG_DFL)


def _begin(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, _AGAIN)


def _stop(seconds: float, number: int, frame: FrameType | None) -> None:
    if any(part in step.f_code.co_filename for step in walk(frame) for part in _COMPILER):
        _begin(seconds)
        return
    raise WithoutEndError(f"no end within {seconds:g} seconds of processor time")
