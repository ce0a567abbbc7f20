"""`advise(trace)`: what could be better in a recorded program, with evidence and a remedy.

A rule is a function of a recording that returns its findings; some rules also look at live tensors and optimizers.
Rules by subject: `kernels`, `transfers`, `growing_memory`, `training`, `compiling`. Start with `finding`, which shows
them.

May import `recording_views`, `session`, `driver.memory_report` and everything below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab import session
from fakegpu_lab.advice.compiling import graph_breaks
from fakegpu_lab.advice.finding import Advice, Finding
from fakegpu_lab.advice.growing_memory import kept_activations, leak
from fakegpu_lab.advice.kernels import all_reduce_alone, data_parallel, gpu_idle, launch_bound
from fakegpu_lab.advice.training import optimizer_before_to
from fakegpu_lab.advice.transfers import (
    pageable_non_blocking,
    same_again,
    sync_each_step,
    tiny_transfers,
    unpinned_loader,
)
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.recorded import note_of_dropped

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded

__all__ = ["Advice", "Finding", "advise"]

RULES = (
    sync_each_step, tiny_transfers, same_again, pageable_non_blocking, unpinned_loader, launch_bound, gpu_idle,
    data_parallel, all_reduce_alone,
)  # fmt: skip
"""The rules that need only the recording."""


def advise(trace: Recorded) -> Advice:
    """Find common reasons why a recorded program is slow or needs a lot of memory.

    Parameters
    ----------
    trace
        The recording that `record` made.

    Returns
    -------
    Advice
        The findings: cards in a notebook, text elsewhere. Call it right after the recording, because it also examines
        the objects that hold memory now, and the optimizers.

    Raises
    ------
    FakeGpuError
        `trace` is not a recording.
    """
    if not hasattr(trace, "began_ns"):
        raise FakeGpuError(
            f"advise({trace!r}) needs a recording: make one with `with lab.record() as trace:` and call "
            "lab.advise(trace)."
        )
    findings = [finding for rule in RULES for finding in rule(trace)]
    if session.enabled() and session.machine() is trace.machine:
        from fakegpu_lab.driver.memory_report import out_of_memory

        findings += kept_activations(trace, out_of_memory.holder) + leak(trace, out_of_memory.holder)
        findings += optimizer_before_to(trace, *out_of_memory.training()) + graph_breaks(trace)
    else:
        findings += kept_activations(trace, lambda addresses: "") + leak(trace, lambda addresses: "")
    return Advice(findings, note_of_dropped(trace))
