"""The path of one op: from torch's dispatcher to the inner tensors and back.

`run` is called for every kernel that touches a FakeCudaTensor. What an overload needs is worked out once, from its
schema and its row, and kept as a *plan* (`plans`); the checks that the row asks for are wrapped around it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, SparseCudaTensor
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost import workspace
from fakegpu_lab.driver.cost.launching import KernelCall
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.dispatch import plans, sparse, values
from fakegpu_lab.driver.environment import own_code
from fakegpu_lab.driver.meta import assumed_values
from fakegpu_lab.driver.placement import determinism, dtypes
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.user_code import interrupts
from fakegpu_lab.user_code.environment import DEBUG

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Plan
    from fakegpu_lab.hardware.time.host_costs import OpCost

_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_no_function_modes = torch._C.DisableTorchFunction

_in_backward: Callable[[], int] = torch._C._current_graph_task_id
_OUTSIDE = -1

_plans: dict[int, tuple[Plan, int, int]] = {}
"""By the id of the overload, because hashing an OpOverload runs Python code; the plan keeps the overload alive.

Beside it, what the op takes on the machine's host: called by Python, and by autograd's engine, ns.
"""


@interrupts.whole_but_for_users_code
def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Run the overload `func`: `__torch_dispatch__` of FakeCudaTensor."""
    __tracebackhide__ = True
    known = _plans.get(id(func))
    if known is None:
        known = _plans[id(func)] = _make_plan(func)
    plan, forward, backward = known
    here.host.now += forward if _in_backward() == _OUTSIDE else backward
    try:
        if _function_mode_enabled():
            # The inner calls are ours, not the user's: `with torch.device(...)` must not redirect them.
            with _no_function_modes():
                return plan(args, kwargs or {})
        return plan(args, kwargs)  # type: ignore[arg-type]
    except Exception as error:
        # The traceback ends at the user's line. (An exception that keeps frames would also keep tensors alive.)
        outcome = device_asserts.failed(func, args, kwargs, error)
        if outcome is None:
            if DEBUG:
                raise
            raise dtypes.as_cuda(assumed_values.explained(func, error.with_traceback(None))) from None
    return outcome()


FakeCudaTensor.__torch_dispatch__ = staticmethod(run)
SparseCudaTensor.on_first.append(_plans.clear)


def _make_plan(func: Any) -> tuple[Plan, int, int]:
    if func.__class__ is KernelCall:
        return func.plan, *_on_host(host_costs.USER_KERNEL)
    if func in sparse.QUERIES:
        return sparse.QUERIES[func], *_on_host(host_costs.NOTHING)
    op = Op(func)
    op.call = values.kernel(op)
    bare = plans.plan(op)
    planned = workspace.borrowing(op, bare)
    checked = dtypes.with_dtype_checks(op, device_asserts.with_assert_checks(op, planned))
    alerting = determinism.with_alerts(op, hidden_waits.with_waits(op, checked))
    plan = sparse.adopting_new_parts(op, sparse.as_cuda_computes(op, alerting))
    if op.host is host_costs.LIST:
        plan = _with_lists(plan)
    if current.machine is not None and current.machine.spec.measured:
        plan = own_code.measuring(plan)
    return plan, *_on_host(host_costs.NOTHING if bare == op.decomposed else op.host)


def _on_host(cost: OpCost) -> tuple[int, int]:
    return current.host_ns(cost.forward), current.host_ns(cost.backward)


def _with_lists(plan: Plan) -> Plan:
    """`plan`, for which the host also takes time for each tensor of its longest list."""
    listed, new = current.host_ns(host_costs.LISTED_TENSOR), current.host_ns(host_costs.LISTED_RESULT)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        here.host.now += listed * max([len(a) for a in args if a.__class__ is list], default=0)
        result = plan(args, kwargs)
        if result.__class__ is list:
            here.host.now += new * len(result)
        return result

    return run


def _noticed(method: Callable[..., Any]) -> Callable[..., Any]:
    """`Library.impl` and `Library._destroy`: a kernel for CUDA in Python replaces an op's plan (`custom_ops`)."""

    @functools.wraps(method)
    def changes(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        finally:
            forget()

    return changes


CHANGES = [
    wrapped(f"torch.library.Library.{name}", _noticed, "kernels in Python replace plans")
    for name in ("impl", "_destroy")
]


def forget() -> None:
    """Drop all plans: they depend on the machine, and on `torch.use_deterministic_algorithms`."""
    _plans.clear()
