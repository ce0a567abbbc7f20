"""Signals (Ctrl-C, a notebook's Stop, an alarm) whose handlers wait until the simulated machine is consistent.

CPython runs signal handlers between any two steps of Python code. An exception that they raise there may leave the
books of the allocator half written, may be lost in a finalizer ("Exception ignored in …"), or may be raised where C++
cannot throw, which ends the process. So while a machine is enabled, a `_Guarded` stands in front of every handler,
whoever sets it: `signal.signal` puts it there, and `signal.getsignal` does not show it. It looks at what the main
thread is doing. At a bad moment, it has CPython call it again at the next step, and so on; then it calls the handler.
So a timeout is raised inside the block that it is for. Programs pay nothing for this until a signal arrives.
"""

from __future__ import annotations

import _thread
import ctypes
import functools
import importlib
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fakegpu_lab.user_code import environment, frames

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    Function = TypeVar("Function", bound=Callable[..., Any])
    Handler = Callable[[int, FrameType | None], Any]

_signal: Any = importlib.import_module("_signal")
"""Where the functions are that `signal.signal` and `signal.getsignal` call."""
_HARDWARE = str(environment.PACKAGE / "hardware")
_FINALIZERS = (str(environment.PACKAGE), str(Path("site-packages", "torch")))
"""Parts of the paths of files whose ``__del__`` methods are short."""
_IMPORTS = ("<frozen importlib._bootstrap>", "_find_and_load")
"""The file and the name of the function that imports a module, the argument `name`."""
_IMPORTED_ONCE = frozenset({"fakegpu_lab", "torch"})
"""Packages that cannot be imported again in a process in which their import was interrupted."""
_GENERATED = "<string>"
"""The file of code that the methods of named tuples and dataclasses are made of."""

_whole: set[CodeType] = set()
_between: set[CodeType] = set()
_interruptible: set[CodeType] = set()
unsafe: list[Callable[[], bool]] = []
"""Each says whether the calling thread is inside C++ code that cannot throw."""


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Have a thread raise `error` at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def whole(function: Function) -> Function:
    """Let `function` run to its end, with all that it calls, before the handler of a signal is called."""
    _whole.add(function.__code__)
    return function


def whole_but_for_users_code(function: Function) -> Function:
    """As `whole`, but when `function` calls the user's code, handlers are called there."""
    _between.add(function.__code__)
    return function


def interruptible(function: Function) -> Function:
    """Let handlers be called in `function`, which may wait long, although `whole` functions call it."""
    _interruptible.add(function.__code__)
    return function


def must_wait(frame: FrameType | None) -> bool:
    """Whether no exception must be raised now, in this frame."""
    if any(inside() for inside in unsafe):
        return True
    users = False
    while frame is not None:
        code = frame.f_code
        file, name = code.co_filename, code.co_name
        if code in _interruptible:
            return False
        if code in _whole or file.startswith(_HARDWARE) or (code in _between and not users):
            return True
        if name == "__del__" and any(folder in file for folder in _FINALIZERS):
            return True
        if name in ("remove", "_remove") and file.endswith(("weakref.py", "_weakrefset.py")):
            return True  # the callback of a weak reference
        if (file, name) == _IMPORTS and frame.f_locals["name"].partition(".")[0] in _IMPORTED_ONCE:
            return True
        users = users or (file != _GENERATED and bool(frames.kind(file) & frames.OWN))
        frame = frame.f_back
    return False


_STEPS, _PAUSE = 100, 0.005
"""After this many steps the signal came in something long, such as an import, and looking at each would take longer
still: from then on there are pauses of this many seconds."""


class _Again(dict[int, None]):
    """``_again[number]`` makes CPython call the handler of a signal at its next step, as if the signal arrived then.

    A subscript, because CPython calls handlers after each call, but not after a subscript.
    """

    __missing__ = staticmethod(_thread.interrupt_main)


class _Announce(dict[int, None]):
    """``_announce[file]`` is ``signal.set_wakeup_fd(file)``, as a subscript."""

    __missing__ = staticmethod(functools.partial(signal.set_wakeup_fd, warn_on_full_buffer=False))


_again, _announce = _Again(), _Announce()


class _Guarded:
    """A signal handler that waits for a good moment.

    Attributes
    ----------
    handler
        The program's own.
    """

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self._waits = 0
        self._pausing = False

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if not must_wait(frame):
            self._waits = 0
            return self.handler(number, frame)
        self._waits += 1
        if self._pausing or (self._waits > _STEPS and self._pause(number)):
            return None
        file = signal.set_wakeup_fd(-1)  # an event loop is to hear of the signal once
        _again[number], _announce[file]
        return None

    def _pause(self, number: int) -> bool:
        """Have CPython call the handler after a pause; False if no thread can be started."""

        def send() -> None:
            time.sleep(_PAUSE)
            self._pausing = False
            _thread.interrupt_main(signal.Signals(number))

        self._pausing = True
        try:
            _thread.start_new_thread(send, ())
        except RuntimeError:
            self._pausing = False
        return self._pausing


def _guarded(handler: Any) -> Any:
    return _Guarded(handler) if callable(handler) and not isinstance(handler, _Guarded) else handler


def _own(handler: Any) -> Any:
    return handler.handler if isinstance(handler, _Guarded) else handler


_set_handler, _get_handler = _signal.signal, _signal.getsignal


def _set(number: int, handler: Any) -> Any:
    return _own(_set_handler(number, _guarded(handler)))


def _get(number: int) -> Any:
    return _own(_get_handler(number))


def install() -> None:
    """Stand in front of all handlers, those that are there and those that are set later, until `uninstall`.

    Libraries keep references to `signal.signal` (IPython's kernel, for one, which sets the handler of SIGINT for each
    message), so the function that it calls is replaced.
    """
    _signal.signal, _signal.getsignal = _set, _get
    _change(_guarded)


def uninstall() -> None:
    """Put back the handlers."""
    _signal.signal, _signal.getsignal = _set_handler, _get_handler
    _change(_own)


def _change(how: Callable[[Any], Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set handlers
    for number in sorted(signal.valid_signals(), reverse=True):  # SIGINT nearly last: its handler may raise at once
        handler = _get_handler(number)
        if how(handler) is not handler:
            _set_handler(number, how(handler))
