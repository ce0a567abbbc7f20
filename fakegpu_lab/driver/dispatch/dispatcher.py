"""The path of one op: from torch's dispatcher to the inner tensors and back.

`run` is called for every kernel that touches a FakeCudaTensor. What an overload needs is worked out once, from its
schema and its row, and kept as a *plan* (`plans`); the checks that the row asks for are wrapped around it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, SparseCudaTensor
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost import workspace
from fakegpu_lab.driver.cost.launching import KernelCall
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.dispatch import plans, sparse, values
from fakegpu_lab.driver.meta import assumed_values
from fakegpu_lab.driver.placement import determinism, dtypes
from fakegpu_lab.user_code import interrupts
from fakegpu_lab.user_code.environment import DEBUG

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Plan

_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_no_function_modes = torch._C.DisableTorchFunction

_plans: dict[int, Plan] = {}
"""By the id of the overload, because hashing an OpOverload runs Python code; the plan keeps the overload alive."""


@interrupts.whole_but_for_users_code
def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Run the overload `func`: `__torch_dispatch__` of FakeCudaTensor."""
    __tracebackhide__ = True
    plan = _plans.get(id(func))
    if plan is None:
        plan = _plans[id(func)] = _make_plan(func)
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


def _make_plan(func: Any) -> Plan:
    if func.__class__ is KernelCall:
        return func.plan
    if func in sparse.QUERIES:
        return sparse.QUERIES[func]
    op = Op(func)
    op.call = values.kernel(op)
    planned = workspace.borrowing(op, plans.plan(op))
    checked = dtypes.with_dtype_checks(op, device_asserts.with_assert_checks(op, planned))
    alerting = determinism.with_alerts(op, hidden_waits.with_waits(op, checked))
    return sparse.adopting_new_parts(op, sparse.as_cuda_computes(op, alerting))


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
