"""What the program's own code takes between two ops, on this computer: ``host="measured"``.

Tokenizing, augmenting, logging: the model of the host knows nothing of it. Here, the processor time of the calling
thread between the end of one op and the beginning of the next is put on the simulated clock, unless it is as short as
what PyTorch and the simulation take there themselves.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current

if TYPE_CHECKING:
    from collections.abc import Callable

    Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]

NOTICED_NS = 50_000
"""Shorter gaps do not count: Python's part of an op is in the model (`hardware.time.host_costs`), and the simulation's
own share, a call of a module under a recording, say, is shorter."""
NAME = "the program's own code"


class _Thread(threading.local):
    """When the last op of this thread ended, by its processor time, ns (0: nothing is known); whether an op runs."""

    ended = 0
    depth = 0


_thread = _Thread()


def restart() -> None:
    """Forget the last op: what the thread has done since is not the program's work (a notebook's, between cells)."""
    _thread.ended = 0


def measuring(plan: Plan) -> Plan:
    """`plan`, before which the program's own code takes simulated time."""

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _thread.depth:
            return plan(args, kwargs)
        if _thread.ended:
            gap = time.thread_time_ns() - _thread.ended
            if gap > NOTICED_NS and current.machine is not None:
                current.machine.keep_host_busy(gap, NAME)
        _thread.depth = 1
        try:
            return plan(args, kwargs)
        finally:
            _thread.depth = 0
            _thread.ended = time.thread_time_ns()

    return run
