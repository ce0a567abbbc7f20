"""When other threads' tensors may be looked at: torch protects neither ``.grad`` nor a tensor that dies from a reader.

Backward changes ``.grad`` in C++, where Python's lock does not hold off a reader. A tensor that dies stays on the list
of the garbage collector while what it held dies, too; taking it from there revives it, and it dies twice. Either ends
the process, in plain PyTorch as well. So a thread that looks at tensors that are not its own asks here first.
"""

from __future__ import annotations

import threading
from _thread import get_ident
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator

lock = threading.RLock()
"""Held while somebody looks at gradients, and while Python code replaces one."""

_backwards: dict[object, int] = {}
"""The backwards that are underway, each with its thread."""

in_turn: set[int] = set()
"""Threads of which only one runs at a time, whatever it does: ranks, and the one that waits for them."""


@interrupts.whole
def begin(backward: object) -> None:
    """The calling thread begins a backward; waits while another thread looks at gradients."""
    with lock:
        _backwards[backward] = get_ident()


def end(backward: object) -> None:
    """It has ended, or has never begun."""
    _backwards.pop(backward, None)


@contextmanager
def held() -> Iterator[bool]:
    """Keep other threads from changing gradients; gives whether they may be read: no other thread runs a backward."""
    with lock:
        yield not any(_beside(thread) for thread in list(_backwards.values()))


def alone() -> bool:
    """Whether no other thread has used a device since the machine was enabled, and may have tensors that die now."""
    return not any(_beside(thread.ident) and _used(thread) for thread in threading.enumerate())


def _beside(thread: int | None) -> bool:
    """Whether a thread may run at the same time as the calling one."""
    me = get_ident()
    return thread != me and not (thread in in_turn and me in in_turn)


def _used(thread: threading.Thread) -> bool:
    host: Any = vars(thread).get("_fakegpu_lab_host")
    return host is not None and bool(host.streams)
