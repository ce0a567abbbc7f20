"""Everything that a check can expect; an expectation that is not met explains why.

A ``%%check`` cell has ``expect`` already; elsewhere, use ``from fakegpu_lab import expect``.

- *Values*: `equal`, `close`, `values`, `true`, `choice`, `at_most`, `shape`, `dtype`, `instance`; `draw` draws inputs.
- *Devices*: `on_device`, `same_device`, `grad_on_device`. *Code*: `calls`, `does_not_call`. *Errors*: `raises`,
  `raises_oom`. *What ran*: `run`, `transfers`, `kernels`, `peak_memory`, `allocated`, `no_sync_in`, `no_races`.
- *Time*: `takes`, `faster_than`, `overlaps`, `score`. *Ranks*: `collectives`, `same_on_every_rank`,
  `equals_single_device`. *Kernels that the student wrote*: `coalesced`, `moves`, `no_bank_conflicts`.

Each also takes ``points=``, ``what=``, ``hint=`` and the other keywords of `Said`, and returns whether the expectation
is met. `Unmet` is raised where no check runs.

Each file has the expectations of one subject. Start with `outcome`. May import `course.flags` and `course.cell_text`.
"""
# `attempt` is the student's cell, `describe` puts values into words. `expectation` makes each function one of a judge,
# which knows of its arguments only what `plain_data` makes of them.

from __future__ import annotations

from fakegpu_lab.course.expect.accesses import coalesced, moves, no_bank_conflicts
from fakegpu_lab.course.expect.code import calls, does_not_call
from fakegpu_lab.course.expect.devices import grad_on_device, on_device, same_device
from fakegpu_lab.course.expect.errors import raises, raises_oom
from fakegpu_lab.course.expect.inputs import draw
from fakegpu_lab.course.expect.outcome import Outcome as Outcome
from fakegpu_lab.course.expect.outcome import Said as Said
from fakegpu_lab.course.expect.outcome import Unmet as Unmet
from fakegpu_lab.course.expect.ranks import collectives, equals_single_device, same_on_every_rank
from fakegpu_lab.course.expect.runs import allocated, kernels, no_races, no_sync_in, peak_memory, run, transfers
from fakegpu_lab.course.expect.time import faster_than, overlaps, score, takes
from fakegpu_lab.course.expect.values import at_most, choice, close, dtype, equal, instance, shape, true, values

__all__ = [
    "allocated",
    "at_most",
    "calls",
    "choice",
    "close",
    "coalesced",
    "collectives",
    "does_not_call",
    "draw",
    "dtype",
    "equal",
    "equals_single_device",
    "faster_than",
    "grad_on_device",
    "instance",
    "kernels",
    "moves",
    "no_bank_conflicts",
    "no_races",
    "no_sync_in",
    "on_device",
    "overlaps",
    "peak_memory",
    "raises",
    "raises_oom",
    "run",
    "same_device",
    "same_on_every_rank",
    "score",
    "shape",
    "takes",
    "transfers",
    "true",
    "values",
]
