"""Simulated time across host threads: a thread starts at the time of `start`, and `join` waits for its end.

Work that is handed to a running thread (by a queue or an executor) is not noticed. Its kernels still queue behind
the others of their stream.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.happens_before import merge

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host

_start: Any = threading.Thread.start
_join: Any = threading.Thread.join


def start(self: threading.Thread) -> None:
    """`threading.Thread.start`."""
    parent = here.host
    vars(self)["_fakegpu_lab_parent"] = (parent.now, parent.first_uses, dict(parent.seen))
    target = vars(self).get("_target")
    if getattr(target, "__qualname__", "") != "parallel_apply.<locals>._worker":
        _start(self)
        return
    # DataParallel's replicas are parallel in simulated time, but run one after the other: every run is the same
    self.name = f"replica {vars(self)['_args'][0]}"
    _start(self)
    _join(self)


def join(self: threading.Thread, timeout: float | None = None) -> None:
    """`threading.Thread.join`."""
    _join(self, timeout)
    child: Host | None = vars(self).get("_fakegpu_lab_host")
    if child is not None and not self.is_alive():
        here.host.wait(child.now)
        here.host.first_uses = max(here.host.first_uses, child.first_uses)
        merge(here.host.seen, child.seen)


CHANGES = [
    replaced("threading.Thread.start", start, "a thread has its own host clock"),
    replaced("threading.Thread.join", join, "who joins a thread waits for its work"),
]
