"""A host thread's simulated time: `clock` reads it, `host_work` spends it."""

from __future__ import annotations

import math

from fakegpu_lab import session
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.clock import here


def host_work(seconds: float) -> None:
    """Keep the calling thread busy for this many seconds of simulated time, as a slow data loader would."""
    try:
        number = math.nan if isinstance(seconds, str) else float(seconds)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise FakeGpuError(f"host_work({seconds!r}): the seconds must be a number, 0 or more, such as 0.05.")
    ns = round(number * 1e9)
    if session.enabled():
        session.machine().keep_host_busy(ns, "host_work")
    else:
        here.host.work(ns)


def clock() -> float:
    """The calling thread's simulated time: seconds since the machine was enabled.

    Use it as you would use ``time.perf_counter()`` on a machine with real GPUs. Launches, copies and waits take time;
    Python and the host's own arithmetic take none (`host_work` stands for them). Without ``torch.cuda.synchronize()``
    in between, the difference of two readings is only the time of the launches. First uses of CUDA and its libraries
    are included, so warm up first (`Trace.first_uses`).

    Raises
    ------
    FakeGpuError
        No machine is enabled.
    """
    session.machine()
    return here.host.clock / 1e9
