"""Two comms for front ends: ``fakegpu_lab.telemetry`` tells, ``fakegpu_lab.control`` listens.

Both are opened by the front end. Two, because a comm on which the busy cell publishes is not answered until the cell
ends, while one that only listens is served by a subshell meanwhile (ipykernel 7). On opening telemetry, the front end
says ``{"acknowledges": true}`` if it will acknowledge through control; see `telemetry.Control`.
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
    """Let front ends open the comms; without a kernel there are none."""
    manager = getattr(getattr(shell, "kernel", None), "comm_manager", None)
    if manager is not None:
        manager.register_target(TELEMETRY, telemetry_opened)
        manager.register_target(CONTROL, control_opened)


def telemetry_opened(comm: Any, message: dict[str, Any]) -> None:
    """A front end wants to know: it is told the state at once, and from then on what changes."""
    asked = message.get("content", {}).get("data") or {}
    telling = publisher()
    outlet = Outlet(telling.source, comm.send, acknowledges=bool(asked.get("acknowledges")))
    outlet.spoke()
    _outlets[comm.comm_id] = outlet

    def closed(_: object) -> None:
        _outlets.pop(comm.comm_id, None)
        telling.remove(outlet)

    comm.on_close(closed)
    comm.on_msg(lambda said: heard(said["content"]["data"] | {"reader": comm.comm_id}))
    telling.add(outlet)


def control_opened(comm: Any, message: dict[str, Any]) -> None:
    """A front end will say how it is doing; it is answered here only, with ``{"ok": …}``."""

    def said(message: dict[str, Any]) -> None:
        comm.send(heard(message["content"]["data"]))

    comm.on_msg(said)


def heard(data: dict[str, Any]) -> dict[str, Any]:
    """Do what a reader asks; what cannot be understood is answered, and changes nothing."""
    try:
        asked = Control.model_validate(data)
    except ValidationError as error:
        return {
            "ok": False,
            "why": f"not understood: {error.error_count()} faults, the first: {error.errors()[0]['msg']}",
        }
    outlet = _outlets.get(asked.reader)
    if outlet is None:
        return {"ok": False, "why": f"nobody reads as {asked.reader!r}"}
    if asked.ack is not None:
        outlet.acked = max(outlet.acked, asked.ack)
    if asked.do == "state":
        outlet.reader.forget()
        outlet.acked = outlet.reader.seq
        publisher().kick()
    elif asked.do is not None:
        outlet.paused = asked.do == "pause"
    return {"ok": True}
