"""Runs the programs of a launch, as many at a time as is fast.

They run together until they part (`running.Diverged`): then each group runs again from its beginning, and to its end
before the next one. So a lock works, too: those that got it part from those that did not, and have released it when the
others try again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fakegpu_lab.kernels.sampling import Progress
from fakegpu_lab.kernels.triton_programs.running import Diverged, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fakegpu_lab.kernels.triton_programs.running import Running

TOGETHER = 1 << 17
"""Elements of the largest block, of all programs that run together: they stay in the host's caches."""
MOST = 4096
"""Programs that run together, at most."""
_FEW = 2
"""Where groups have fewer programs than this, on average, running together is not worth while."""


def run_all(running: Running, program: Callable[[], Any], name: str, chosen: NDArray[np.int64]) -> None:
    """Run the programs with these numbers.

    Parameters
    ----------
    program
        Runs ``running.ids``.
    name
        The kernel's.
    """
    progress = Progress(name, len(chosen), "programs")
    now.append(running)
    try:
        done = _together(running, program, chosen[:1])
        running.first_has_run()
        while done < len(chosen):
            count = 1 if running.one_by_one else min(max(TOGETHER // running.largest, 1), MOST)
            done += _together(running, program, chosen[done : done + count])
            progress.reached(done)
    finally:
        now.pop()
        progress.end()


def _together(running: Running, program: Callable[[], Any], ids: NDArray[np.int64]) -> int:
    """Run some programs, in groups if need be; returns their number."""
    waiting = [ids]
    groups = 0
    while waiting:
        ids_now = waiting.pop()
        running.begin(ids_now)
        try:
            program()
        except Diverged as parting:
            running.take_back()
            values, first = np.unique(parting.values, return_index=True)
            order = np.argsort(first)
            waiting += [ids_now[parting.values == values[place]] for place in reversed(order)]
        except BaseException:
            running.take_back()
            raise
        else:
            running.finish()
            groups += 1
    if len(ids) > 1 and len(ids) < _FEW * groups:
        running.one_by_one = True
    return len(ids)
