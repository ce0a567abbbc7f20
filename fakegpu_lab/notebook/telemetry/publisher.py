"""Sends telemetry: a thread polls the source a few times a second and sends each reader what is new to it.

It does not slow the kernel: it takes at most `SHARE` of the process's processor time. A reader that does not
acknowledge messages gets no more of them (its next one has everything since, so nothing is lost), and one that cannot
acknowledge while a cell runs gets a few small messages a second, which nobody waits for.

There are two comms, and the front end opens both: ``fakegpu_lab.telemetry`` sends messages, ``fakegpu_lab.control``
receives commands. There are two because a comm on which the busy cell publishes is not answered until the cell ends,
while a subshell serves one that only listens (ipykernel 7). When it opens telemetry, the front end sends
``{"acknowledges": true}`` if it will acknowledge messages through control; see `messages.Control`.
"""

from __future__ import annotations

import threading
from time import monotonic, process_time, thread_time
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fakegpu_lab.notebook.telemetry.messages import Control
from fakegpu_lab.notebook.telemetry.source import Reader, Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from IPython.core.interactiveshell import InteractiveShell


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


TELEMETRY = "fakegpu_lab.telemetry"
CONTROL = "fakegpu_lab.control"

_outlets: dict[str, Outlet] = {}


def register(shell: InteractiveShell) -> None:
    """Let front ends open the comms, if there is a kernel."""
    manager = getattr(getattr(shell, "kernel", None), "comm_manager", None)
    if manager is not None:
        manager.register_target(TELEMETRY, telemetry_opened)
        manager.register_target(CONTROL, control_opened)


def telemetry_opened(comm: Any, message: dict[str, Any]) -> None:
    """Send the state to a front end that opened the comm, and from then on what changes."""
    options = message.get("content", {}).get("data") or {}
    sender = publisher()
    outlet = Outlet(sender.source, comm.send, acknowledges=bool(options.get("acknowledges")))
    outlet.spoke()
    _outlets[comm.comm_id] = outlet

    def closed(_: object) -> None:
        _outlets.pop(comm.comm_id, None)
        sender.remove(outlet)

    comm.on_close(closed)
    comm.on_msg(lambda message: heard(message["content"]["data"] | {"reader": comm.comm_id}))
    sender.add(outlet)


def control_opened(comm: Any, message: dict[str, Any]) -> None:
    """Take commands from a front end; each is answered on this comm, with ``{"ok": …}``."""

    def received(message: dict[str, Any]) -> None:
        comm.send(heard(message["content"]["data"]))

    comm.on_msg(received)


def heard(data: dict[str, Any]) -> dict[str, Any]:
    """Carry out a reader's command and return the answer; a command that is not understood changes nothing."""
    try:
        command = Control.model_validate(data)
    except ValidationError as error:
        return {
            "ok": False,
            "why": f"not understood: {error.error_count()} faults, the first: {error.errors()[0]['msg']}",
        }
    outlet = _outlets.get(command.reader)
    if outlet is None:
        return {"ok": False, "why": f"nobody reads as {command.reader!r}"}
    if command.ack is not None:
        outlet.acked = max(outlet.acked, command.ack)
    if command.do == "state":
        outlet.reader.forget()
        outlet.acked = outlet.reader.seq
        publisher().kick()
    elif command.do is not None:
        outlet.paused = command.do == "pause"
    return {"ok": True}
