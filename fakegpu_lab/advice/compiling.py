"""A rule about compiled functions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from fakegpu_lab.advice.finding import Finding, total_ns
from fakegpu_lab.formatting.units import duration, percent, several

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded


def graph_breaks(recorded: Recorded) -> list[Finding]:
    """A line of a compiled function ends its graph: the host may wait there, and no kernel reaches across it."""
    names = {kernel.name for kernel in recorded.kernels if kernel.name.startswith("triton_")}
    if not names or "torch._dynamo" not in sys.modules:
        return []
    from fakegpu_lab.driver.compile import compilations  # imports torch, so only here

    found = []
    for line, why in compilations.breaks(names).items():
        waits = [wait for wait in recorded.waits if wait.line == line]
        lost = total_ns(waits)
        share = percent(lost, recorded.ended_ns - recorded.began_ns)
        cost = f"The host waited here {several(len(waits), 'time')}, {duration(lost)} in all ({share} of the time). "
        found.append(Finding(
            "graph_break", "A graph of a compiled function breaks",
            f"{why.strip().rstrip('.')}. {cost if waits else ''}What is computed before the break and after it is in "
            "different graphs, so it shares no kernels.",
            "Move the line out of the function, or compute it with tensors (torch.where instead of `if`). With "
            "fullgraph=True, torch.compile raises an error instead.",
            line, lost,
        ))  # fmt: skip
    return found
