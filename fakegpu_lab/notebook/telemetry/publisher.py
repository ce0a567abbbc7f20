"""Sends telemetry: a thread polls the source a few times a second and sends each reader what is new to it.

It does not slow the kernel: it takes at most `SHARE` of the process's processor time. A reader that does not
acknowledge messages gets no more of them (its next one has everything since, so nothing is lost), and one that cannot
acknowledge while a cell runs gets a few small messages a second, which nobody waits for.
"""

from __future__ import annotations

import threading
from time import monotonic, process_time, thread_time
from typing import TYPE_CHECKING, Any

from fakegpu_lab.notebook.telemetry.source import Reader, Source

if TYPE_CHECKING:
    from collections.abc import Callable

INTERVAL = 0.125
"""The shortest pause between two messages, in seconds."""

SLOWEST = 2.0
"""The longest pause, in seconds."""

SHARE = 0.003
"""The share of the process's processor time that telemetry may take."""

CREDIT = 0.05
"""Seconds of processor time that it may spend in advance: a new timeline costs more than a few rows."""

IDLE = 0.5
"""Seconds between two polls while no cell runs."""

UNSEEN = 4
"""Messages that a reader may leave unacknowledged."""

PATIENCE = 20
"""Polls in a row that may fail before the thread gives up; after a failure, readers get the whole state again."""

HELLO = (0.5, 1.5, 3.0, 6.0, 12.0)
"""Seconds after which a silent reader gets the whole state again: its front end may still have been loading."""


class Outlet:
    """One reader, and how to reach it.

    Parameters
    ----------
    send
        Sends a message; raises if the reader is gone.
    acknowledges
        Whether the reader acknowledges messages even while a cell runs.
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
        """Note that the reader has sent something, so it is there."""
        self._repeats = []

    def publish(self) -> bool:
        """Send what is new, unless the reader is behind; return False if it is gone."""
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
    """Sends to its readers, in a thread of its own, as long as there are any."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.outlets: list[Outlet] = []
        self._lock = threading.Lock()
        self._kick = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, outlet: Outlet) -> None:
        """Add a reader."""
        with self._lock:
            self.outlets.append(outlet)
            if len(self.outlets) == 1:
                self.source.open()
                self._thread = threading.Thread(target=self._run, name="fakegpu-lab telemetry", daemon=True)
                self._thread.start()
        self._kick.set()

    def remove(self, outlet: Outlet) -> None:
        """Remove a reader; without readers, the source stops watching."""
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
        """Send now, because a cell has ended or a reader asked."""
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
            except Exception:  # the state changed while it was read
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
    """The publisher, if it has readers."""
    return _publisher if _publisher is not None and _publisher.outlets else None
