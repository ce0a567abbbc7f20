"""Interrupts (Ctrl-C, a notebook's Stop) that wait until the simulated machine is consistent.

CPython runs signal handlers between any two steps of Python code. A `KeyboardInterrupt` that they raise may leave the
books of the allocator half written, may be lost in a finalizer ("Exception ignored in …"), or may be raised where C++
cannot throw, which ends the process. So while a machine is enabled, `_Guarded` stands in front of the handler. It looks
at what the main thread is doing. At a bad moment it has the signal sent again a little later; otherwise it calls the
handler. Programs pay nothing for this until somebody interrupts them.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    Function = TypeVar("Function", bound=Callable[..., Any])

PAUSE = 0.001
"""Seconds until an interrupt that came at a bad moment is sent again."""

_HARDWARE = str(environment.PACKAGE / "hardware")
_FINALIZERS = (str(environment.PACKAGE), str(Path("site-packages", "torch")))
"""Parts of the paths of files whose ``__del__`` methods are short."""

_whole: set[CodeType] = set()
_interruptible: set[CodeType] = set()
unsafe: list[Callable[[], bool]] = []
"""Each says whether the calling thread is inside C++ code that cannot throw."""


def whole(function: Function) -> Function:
    """Let `function` run to its end, with all that it calls, before an interrupt is raised."""
    _whole.add(function.__code__)
    return function


def interruptible(function: Function) -> Function:
    """Let interrupts be raised in `function`, which may wait long, although the functions of its file are `whole`."""
    _interruptible.add(function.__code__)
    return function


def must_wait(frame: FrameType | None) -> bool:
    """Whether an interrupt must not be raised now, in this frame."""
    if any(inside() for inside in unsafe):
        return True
    if frame is not None and frame.f_code in _interruptible:
        return False
    while frame is not None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        if code in _whole or file.startswith(_HARDWARE):
            return True
        if name == "__del__" and any(folder in file for folder in _FINALIZERS):
            return True
        if name in ("remove", "_remove") and file.endswith(("weakref.py", "_weakrefset.py")):
            return True  # the callback of a weak reference
        frame = frame.f_back
    return False


def _send_again(number: int) -> None:
    time.sleep(PAUSE)
    _thread.interrupt_main(signal.Signals(number))


class _Guarded:
    """A signal handler that waits for a good moment.

    Attributes
    ----------
    handler
        The program's own.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if must_wait(frame):
            try:
                _thread.start_new_thread(_send_again, (number,))
            except RuntimeError:  # no more threads: it is raised here after all
                pass
            else:
                return None
        return self.handler(number, frame)


def _guard(*_: object) -> None:
    """Stand in front of the handler of SIGINT; only the main thread may."""
    if threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and not isinstance(handler, (_Guarded, signal.Handlers)):
        signal.signal(signal.SIGINT, _Guarded(handler))


def watch() -> Callable[[], None]:
    """Have interrupts wait for good moments from now on; returns what ends that.

    IPython's kernel sets the handler of SIGINT for each cell, so it is guarded again before each cell.
    """
    _guard()
    shell = environment.shell()
    if shell is not None:
        shell.events.register("pre_run_cell", _guard)

    def end() -> None:
        if shell is not None and _guard in shell.events.callbacks["pre_run_cell"]:
            shell.events.unregister("pre_run_cell", _guard)
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if isinstance(handler, _Guarded):
                signal.signal(signal.SIGINT, handler.handler)

    return end
