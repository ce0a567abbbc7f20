"""A thread of a kernel whose loop never ends: a card would hang, and here the launch ends with a sentence.

Nothing on the way of an access could count it without taking longer than the access. So another thread of this process
looks once a second how far the launches are, and raises `EndlessError` in one that does not get on.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

from fakegpu_lab.kernels.numba_cuda import threads
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sized

MOST_ACCESSES = 2_000_000
"""One thread makes no more of them; on a card, that would take it a second."""
MOST_SECONDS = 60
"""So long a thread of a kernel computes, at most, without an access."""
_PAUSE = 1.0


class EndlessError(Exception):
    """Raised in a kernel, wherever it is."""


class _Launch:
    """A launch that is watched, and where it was at the last look."""

    def __init__(self, accesses: Sized) -> None:
        self.accesses = accesses
        self.ident = threading.get_ident()
        self.thread: threads.Thread | None = None
        self.began = self.seen = 0
        self.since = time.monotonic()

    def look(self) -> None:
        """End the launch if the thread of the kernel that ran at the last look has come nowhere."""
        thread, count, now = getattr(threads.here, "thread", None), len(self.accesses), time.monotonic()
        another = thread is not self.thread or count < self.began
        if another:
            self.thread, self.began = thread, count
        if another or count != self.seen:
            self.seen, self.since = count, now
        if count - self.began > MOST_ACCESSES or now - self.since > MOST_SECONDS:
            self.thread, self.began, self.since = None, count, now
            interrupts.raise_in(self.ident, EndlessError)


_launches: list[_Launch] = []
_watching = threading.Event()
_watchers: list[threading.Thread] = []


def _watch() -> None:
    while True:
        _watching.wait()
        time.sleep(_PAUSE)
        for launch in _launches.copy():
            launch.look()


@contextlib.contextmanager
def watched(accesses: Sized) -> Iterator[None]:
    """Watch the launch that is made inside; `accesses` has one item for each of its accesses so far."""
    if not any(one.is_alive() for one in _watchers):  # none yet, or this is a fork
        _watchers[:] = [threading.Thread(target=_watch, name=__name__, daemon=True)]
        _watchers[0].start()
    launch = _Launch(accesses)
    _launches.append(launch)
    _watching.set()
    try:
        yield
    finally:
        _launches.remove(launch)
        if not _launches:
            _watching.clear()
