"""Everything that a check can expect. Each explains itself where it is not met.

In a ``%%check`` cell ``expect`` is there already. Elsewhere ``from fakegpu_lab import expect``; what is not met raises
`Unmet` there, an AssertionError: they serve in any test.

>>> from fakegpu_lab import expect
>>> expect.close(0.1 + 0.2, 0.3)
True

All take ``points=``, ``what=``, ``hint=``, ``success=`` and ``failure=`` (see `Said`). Those about a run take
``trace=``: a recording (`fakegpu_lab.record`), or a function without arguments, which is then run and recorded. Without
it they look at what ``expect.run`` ran last in this check, and else at what the exercise's cell did.
"""

from __future__ import annotations

from fakegpu_lab.course.expect_code import calls, does_not_call
from fakegpu_lab.course.expect_devices import grad_on_device, on_device, same_device
from fakegpu_lab.course.expect_errors import raises, raises_oom
from fakegpu_lab.course.expect_ranks import collectives, equals_single_device, same_on_every_rank
from fakegpu_lab.course.expect_runs import allocated, kernels, no_races, no_sync_in, peak_memory, run, transfers
from fakegpu_lab.course.expect_time import faster_than, overlaps, score, takes
from fakegpu_lab.course.expect_values import at_most, choice, close, dtype, equal, instance, shape, true, values
from fakegpu_lab.course.outcome import Outcome, Said, Unmet

__all__ = [
    "Outcome",
    "Said",
    "Unmet",
    "allocated",
    "at_most",
    "calls",
    "choice",
    "close",
    "collectives",
    "does_not_call",
    "dtype",
    "equal",
    "equals_single_device",
    "faster_than",
    "grad_on_device",
    "instance",
    "kernels",
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
