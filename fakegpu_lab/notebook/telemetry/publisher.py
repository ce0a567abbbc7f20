"""Sending telemetry: a thread that asks the source a few times a second and tells every reader what is new to it.

It never slows the kernel: it takes at most `SHARE` of what the process takes, whatever there is to tell; a reader who
does not acknowledge what it got is not sent more (its next message has everything since, so nothing is lost); and one
that cannot acknowledge while a cell runs is sent no more than a few small messages a second, which nobody waits for.
"""

from __future__ import annotations

import threading
from time import monotonic, process_time, thread_time
from typing import TYPE_CHECKING, Any

from fakegpu_lab.notebook.telemetry.source import Reader, Source

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = 0.125
"""Seconds between two messages, at the least."""

SLOWEST = 2.0
"""Seconds, at the most."""

SHARE = 0.003
"""Of the process's own time on the processor, what telling may take."""

CREDIT = 0.05
"""Seconds of a processor that may be spent ahead: a new timeline costs more than a few rows."""

IDLE = 0.5
"""Seconds between two looks while no cell runs."""

UNSEEN = 4
"""Messages that a reader may leave unacknowledged."""

PATIENCE = 20
"""Turns in a row that may fail before telling ends; at the next one that does not, readers are told all again."""

HELLO = (0.5, 1.5, 3.0, 6.0, 12.0)
"""Seconds after which all is told again to a reader that has not spoken: its front end may have been still loading."""


class Outlet:
    """One reader, and the way to it.

    Parameters
    ----------
    send
        Sends a message; raises when the way is gone.
    acknowledges
        Whether the reader acknowledges messages also while a cell runs.
    """

    def __init__(self, source: Source, send: Callable[[dict[str, Any]], object], *, acknowledges: bool) -> None:
        self.reader = Reader(source)
        self.acknowledges = acknowledges
        self.acked = 0
        self.paused = False
        self._send = send
        self._began = monotonic()
        self._repeats = list(HELLO)

    def spoke(self) -> None:
        """The reader is there."""
        self._repeats = []

    def publish(self) -> bool:
        """Send what is new, unless the reader is behind; False when the way to it is gone."""
        behind = self.reader.seq - self.acked >= UNSEEN
        if self.paused or (self.acknowledges and behind):
            return True
        if self._repeats and not self.acknowledges and monotonic() - self._began > self._repeats[0]:
            del self._repeats[0]
            self.reader.forget()
        message = self.reader.message()
        if message is None:
            return True
        try:
            self._send(message.model_dump(mode="json"))
        except Exception:
            return False
        return True


class Publisher:
    """Tells readers, in a thread of its own, as long as there are any."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.outlets: list[Outlet] = []
        self._lock = threading.Lock()
        self._kick = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, outlet: Outlet) -> None:
        """Tell one more reader."""
        with self._lock:
            self.outlets.append(outlet)
            if len(self.outlets) == 1:
                self.source.open()
                self._thread = threading.Thread(target=self._run, name="fakegpu-lab telemetry", daemon=True)
                self._thread.start()
        self._kick.set()

    def remove(self, outlet: Outlet) -> None:
        """Tell this reader no more; without readers nothing is watched."""
        with self._lock:
            if outlet not in self.outlets:
                return
            self.outlets.remove(outlet)
            if self.outlets:
                return
            thread, self._thread = self._thread, None
        self._kick.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2)
        self.source.close()

    def kick(self) -> None:
        """Tell now: a cell has ended, somebody asked."""
        self._kick.set()

    def _run(self) -> None:
        me = threading.current_thread()
        credit, last = CREDIT, process_time()
        failed = 0
        while self._thread is me:
            began = thread_time()
            self._kick.clear()
            try:
                self.source.poll()
                for outlet in list(self.outlets):
                    if not outlet.publish():
                        self.remove(outlet)
                failed = 0
            except Exception:  # what it read changed under its hands
                failed += 1
                if failed == PATIENCE:
                    raise
                for outlet in list(self.outlets):
                    outlet.reader.forget()
            now = process_time()
            credit = min(credit + (now - last) * SHARE, CREDIT) - (thread_time() - began)
            last = now
            pause = min(max(-credit / SHARE, INTERVAL), SLOWEST)
            if not self.source.busy:
                pause = max(pause, IDLE)
            self._kick.wait(pause)


_publisher: Publisher | None = None


def publisher() -> Publisher:
    """The kernel's one publisher."""
    global _publisher
    if _publisher is None:
        _publisher = Publisher(Source())
    return _publisher


def existing() -> Publisher | None:
    """The publisher, if anybody reads."""
    return _publisher if _publisher is not None and _publisher.outlets else None
