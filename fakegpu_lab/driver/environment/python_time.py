"""What Python takes around the ops, in simulated time: calls of modules, steps of optimizers.

`dispatcher` adds what an op takes. These two are counted where they happen, because their number does not follow from
the ops: a module may run none (dropout in eval mode), and an optimizer prepares every parameter before its first op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, computed, item, recoded
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change

HOOK = "fakegpu_lab"
"""The key of the hook on optimizers, among those of other people, which are numbers."""
_fakegpu_lab_here, _fakegpu_lab_call_ns = here, 0  # in the module of `nn.Module`, whose function has the code below


# `nn.Module.__call__`, which takes time. Only its code is changed, and the lines are where torch's are: Dynamo compares
# the function with torch's, and tracebacks show torch's text. A compiled program calls no modules.
def _wrapped_call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
    if not torch.compiler.is_compiling():
        _fakegpu_lab_here.host.now += _fakegpu_lab_call_ns
    call = self._compiled_call_impl or self._call_impl
    return call(*args, **kwargs)


def _calls() -> list[Change]:
    why = "a module's call takes the host time"
    return [
        added("torch.nn.modules.module._fakegpu_lab_here", here, why),
        added("torch.nn.modules.module._fakegpu_lab_call_ns", current.host_ns(host_costs.MODULE_CALL), why),
        recoded("torch.nn.Module._wrapped_call_impl", _wrapped_call_impl, why),
    ]


def _steps() -> list[Change]:
    each = current.host_ns(host_costs.OPTIMIZED_PARAMETER)

    def steps(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        here.host.now += each * sum([len(group["params"]) for group in optimizer.param_groups])

    why = "an optimizer's step takes the host time for each parameter"
    return [item("torch.optim.optimizer._global_optimizer_pre_hooks", HOOK, lambda _: steps, why)]


CHANGES = [
    computed(_calls, "modules take the host time"),
    computed(_steps, "optimizers take the host time"),
]
