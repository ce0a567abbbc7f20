"""What a run does before SIGTERM ends it, as ``timeout``, ``kill`` and job schedulers do."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TERMINATED = 128 + signal.SIGTERM
"""The exit status that a shell gives a program that SIGTERM ended."""

_set, _get = signal.signal, signal.getsignal


def before(last: Callable[[], object]) -> None:
    """Call `last` when SIGTERM comes; then the process dies of it, without exit handlers, as ``python`` does.

    The program does not notice: `signal.getsignal` still answers SIG_DFL, so libraries that look (Lightning calls what
    it finds) do what they would do otherwise. A handler of the program's own takes the place of this one.
    """
    if _get(signal.SIGTERM) is not signal.SIG_DFL:  # the parent process ignores it
        return
    process = os.getpid()

    def die(number: int, frame: object) -> None:
        with contextlib.suppress(RuntimeError):  # the signal came while the program was writing to stdout
            last()
        _set(signal.SIGTERM, signal.SIG_DFL)
        os.kill(process, signal.SIGTERM)

    def default_in_child() -> None:
        if _get(signal.SIGTERM) is die:
            _set(signal.SIGTERM, signal.SIG_DFL)

    @functools.wraps(_set)
    def set_handler(signalnum: Any, handler: Any) -> Any:
        ours = signalnum == signal.SIGTERM and handler is signal.SIG_DFL and os.getpid() == process
        old = _set(signalnum, die if ours else handler)
        return signal.SIG_DFL if old is die else old

    @functools.wraps(_get)
    def get_handler(signalnum: Any) -> Any:
        found = _get(signalnum)
        return signal.SIG_DFL if found is die else found

    _set(signal.SIGTERM, die)
    signal.signal, signal.getsignal = set_handler, get_handler
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=default_in_child)
