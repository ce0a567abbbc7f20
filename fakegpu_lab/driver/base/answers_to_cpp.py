"""Answers that C++ gets from Python objects without running a line of Python.

C++ asks the device guard for its type from functions that are ``noexcept``: when it records the stream of a node, and
when it leaves a node of backward, also while a Python exception unwinds it. Any exception there ends the process
("terminate called without an active exception"), and in Python code one can always appear: CPython handles signals
(Ctrl-C, a notebook's Stop) and exceptions sent by other threads whenever a function written in Python begins. So the
answer is composed of iterators and functions that are written in C.

While C++ unwinds, CPython's error indicator is set, and CPython refuses what a function returns with an exception set.
`answer` therefore takes that exception away, as C's ``PyErr_Fetch`` does, and keeps it; `raise_kept` raises it again
where Python may raise.
"""

from __future__ import annotations

import _thread
import ctypes
import struct
import sys
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import repeat, starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_ERROR = (ctypes.c_void_p * 3)()
"""The exception that was fetched last: the addresses of its type, its value and its traceback."""
_error_bytes = memoryview(_ERROR).cast("B").tobytes

_fetch: Any = ctypes.PyDLL("python", handle=ctypes.pythonapi._handle).PyErr_Fetch  # on Windows it must have a name
_fetch.restype = None
_restore: Any = ctypes.PyDLL("python", handle=ctypes.pythonapi._handle).PyErr_Restore
_restore.restype = None
_restore.argtypes = [ctypes.c_void_p] * 3

_kept: defaultdict[bytes, int] = defaultdict(_thread.get_ident)
"""The exceptions that `answer` took away, as bytes of `_ERROR`, each with the thread in which it was raised."""


_answers: list[Any] = []
_quiet: list[int] = []
"""How many references there are to each of `_answers` while C++ does not ask."""


def _references() -> list[int]:
    return [sys.getrefcount(one) for one in _answers]


def settle() -> None:
    """Note that all answers are in their places, and that C++ asks for none."""
    _quiet[:] = _references()


def asked() -> bool:
    """Whether the calling thread's C++ is about to call one of the answers.

    pybind11 looks the function up and then, before it calls it, handles signals: it makes a string of a name, and
    ``PyObject_Str`` does that (`get_type_override`). Meanwhile there is one reference more to the function. No other
    thread can be at that place while this one runs Python.
    """
    return any(now > quiet for now, quiet in zip(_references(), _quiet, strict=False))


def constant(value: Any) -> Callable[..., Any]:
    """Make a function that returns `value`, whatever its argument, and that is written in C.

    pybind11 takes a built-in function for C++'s own method and would call nothing; it calls any other object.
    """
    made = partial(next, repeat(value))
    _answers.append(made)
    return made


def answer(value: Any) -> Callable[[], Any]:
    """Make a function without arguments that returns `value`, is written in C, and may be called with an exception set.

    In the order in which they run: `fetching` clears the error indicator; `itemgetter` reads which type of exception
    there was; a dictionary gives `value` where there was none, and where there was one keeps it first. Nothing in
    between lets another thread run, or the garbage collector.
    """
    fetching = starmap(_fetch, repeat(tuple(ctypes.byref(_ERROR, place * _POINTER) for place in range(3))))
    keeping = map(_kept.__getitem__, starmap(_error_bytes, repeat(())))

    class Choice(dict[Any, Any]):
        __missing__ = staticmethod(partial(next, map(next, repeat(repeat(value)), keeping)))

    kinds = map(itemgetter(0), repeat(_ERROR))
    choosing = map(Choice({None: value}).__getitem__, kinds)
    made = map(next, repeat(choosing), fetching).__next__
    _answers.append(made)
    return made


def raise_kept() -> None:
    """Raise the exception that was taken away from the calling thread's C++ last; does nothing if there is none."""
    me = _thread.get_ident()
    mine = [error for error, thread in list(_kept.items()) if thread == me]
    for error in mine[:-1]:
        _release(error)
    if mine and _kept.pop(mine[-1], None) is not None:
        _restore(*struct.unpack("3P", mine[-1]))  # ctypes raises what is set


def forget_kept() -> None:
    """Drop what was taken away from the calling thread's C++ and never raised: somebody swallowed what came of it."""
    if _kept:
        with suppress(BaseException):
            raise_kept()


def _release(error: bytes) -> None:
    if _kept.pop(error, None) is not None:
        with suppress(BaseException):
            _restore(*struct.unpack("3P", error))
