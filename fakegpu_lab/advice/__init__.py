"""`advise(trace)`: what a recording shows that could be better, with evidence, and what to do.

Each rule is a function of a recording, and of what is alive where it needs that; it returns its findings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab import session
from fakegpu_lab.advice.finding import Advice, Finding
from fakegpu_lab.advice.kernels import all_reduce_alone, data_parallel, gpu_idle, launch_bound
from fakegpu_lab.advice.memory import kept_activations, leak
from fakegpu_lab.advice.training import optimizer_before_to
from fakegpu_lab.advice.transfers import (
    pageable_non_blocking,
    same_again,
    sync_each_step,
    tiny_transfers,
    unpinned_loader,
)
from fakegpu_lab.timeline.recorded import note_of_dropped

if TYPE_CHECKING:
    from fakegpu_lab.timeline.recorded import Recorded

__all__ = ["Advice", "Finding", "advise"]

RULES = (
    sync_each_step, tiny_transfers, same_again, pageable_non_blocking, unpinned_loader, launch_bound, gpu_idle,
    data_parallel, all_reduce_alone,
)  # fmt: skip
"""Those that need the recording alone."""


def advise(trace: Recorded) -> Advice:
    """Look through a recording for what commonly makes programs slow or large.

    Parameters
    ----------
    trace
        What `record` made.

    Returns
    -------
    Advice
        The findings; it shows itself as cards in a notebook, as text elsewhere. What holds memory, and what optimizers
        hold, is looked up now: right after the recording that is told best.
    """
    findings = [finding for rule in RULES for finding in rule(trace)]
    if session.enabled() and session.machine() is trace.machine:
        from fakegpu_lab.driver.memory_report import references

        findings += kept_activations(trace, references.holder) + leak(trace, references.holder)
        findings += optimizer_before_to(trace, *references.training())
    else:
        findings += kept_activations(trace, lambda addresses: "") + leak(trace, lambda addresses: "")
    return Advice(findings, note_of_dropped(trace))
