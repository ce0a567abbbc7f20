"""Inside a submission's process: disarms what a cell has left that would act while a check runs.

A timer, a handler of signals, a profiler, a hook of imports or of the garbage collector: each is taken away before a
check, and reported. Threads cannot be taken away; they are reported when they are started (`tampering.watch`).
"""

from __future__ import annotations

import builtins
import functools
import gc
import signal
import sys
import threading
import warnings
from typing import Any

from fakegpu_lab.course.flags.tampering import from_cell

_HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook")


def _own(thing: Any) -> bool:
    """Whether something that can be called was written in a cell: a function, a method, an object, a partial call."""
    if isinstance(thing, functools.partial):
        return _own(thing.func)
    return (
        from_cell(thing)
        or from_cell(vars(type(thing)).get("__call__"))
        or from_cell(vars(type(thing)).get("find_spec"))
    )


class Armed:
    """What could act during a check, as it was before the submission ran."""

    def __init__(self) -> None:
        self._import = builtins.__import__
        self._hooks = {name: getattr(sys, name) for name in _HOOKS if hasattr(sys, name)}
        self._warn = warnings.showwarning
        self._handlers: dict[int, Any] = {}
        for number in signal.valid_signals():
            self._handlers[number] = signal.getsignal(number)

    def disarm(self) -> list[str]:
        """Take away what the submission left, and say what that was."""
        found = self._profilers() + self._signals()
        tables: Any = (
            ("gc.callbacks", gc.callbacks),
            ("sys.meta_path", sys.meta_path),
            ("sys.path_hooks", sys.path_hooks),
        )
        for name, table in tables:
            for hook in [one for one in table if _own(one)]:
                table.remove(hook)
                found.append(f"a hook in {name} was in place")
        for name, hook in self._hooks.items():
            if _own(getattr(sys, name)):
                setattr(sys, name, hook)
                found.append(f"sys.{name} had been replaced")
        if builtins.__import__ is not self._import:
            builtins.__import__ = self._import
            found.append("builtins.__import__ had been replaced")
        if _own(warnings.showwarning):
            warnings.showwarning = self._warn
        return found

    def _profilers(self) -> list[str]:
        found = []
        if sys.getprofile() is not None:
            sys.setprofile(None)
            found.append("a profiler (sys.setprofile) was running")
        if _own(sys.gettrace()):
            sys.settrace(None)
            found.append("a tracer (sys.settrace) was running")
        for name in ("_profile_hook", "_trace_hook"):
            if _own(getattr(threading, name, None)):
                setattr(threading, name, None)
                found.append("a profiler of threads was in place")
        monitoring: Any = getattr(sys, "monitoring", None)
        for tool in range(6) if monitoring is not None else ():
            if monitoring.get_tool(tool) is not None:
                monitoring.set_events(tool, 0)
                found.append("a tool of sys.monitoring was in place")
        return found

    def _signals(self) -> list[str]:
        found = []
        if hasattr(signal, "setitimer"):
            for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
                if signal.getitimer(timer)[0]:
                    signal.setitimer(timer, 0)
                    found.append("a timer of signals was running")
        for number, handler in self._handlers.items():
            now = signal.getsignal(number)
            if now is not handler and _own(now):
                signal.signal(number, handler)
                found.append(f"signal {number} had a handler")
        return found
