"""Two comms for front ends: ``fakegpu_lab.telemetry`` sends messages, ``fakegpu_lab.control`` receives commands.

The front end opens both. There are two because a comm on which the busy cell publishes is not answered until the cell
ends, while a subshell serves one that only listens (ipykernel 7). When it opens telemetry, the front end sends
``{"acknowledges": true}`` if it will acknowledge messages through control; see `messages.Control`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from fakegpu_lab.notebook.telemetry.messages import Control
from fakegpu_lab.notebook.telemetry.publisher import Outlet, publisher

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

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
