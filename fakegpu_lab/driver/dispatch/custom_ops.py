"""Operators that users register from Python (`torch.library.custom_op`, `Library.impl`), called with device tensors.

Kernels for ``cuda`` or for every device get the device tensors themselves, as on CUDA: the function sees
``x.is_cuda``, and each op inside it is counted. An operator with a kernel for the CPU alone raises torch's error.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import library

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan

KEYS = ("CUDA", "CompositeExplicitAutograd")
"""The dispatch keys of kernels that take CUDA tensors; C++ prefers the first."""


def plan(op: Op) -> Plan | None:
    """The plan of an operator that was registered from Python; None for all others."""
    of_torch = op.func.namespace == "aten"
    if of_torch and op.func.name().partition("::")[2] in _torchs_own():
        return None
    if not any(registered(op.func, key) for key in (("CUDA",) if of_torch else (*KEYS, "CPU"))):
        return None
    return partial(_run, op)


def _torchs_own() -> set[str]:
    """Ops that torch computes with Triton kernels of its own where Triton is installed: the values are the same."""
    registry = sys.modules.get("torch._native.registry")
    overrides = getattr(registry, "_aten_override_libs", {})
    return {name for name, _ in overrides}


def registered(func: Any, key: str) -> bool:
    """Whether Python code has registered a kernel for a dispatch key (`torch.library.Library.impl` keeps this list)."""
    name = func.name().replace("::", "/")  # with the name of the overload, if it has one
    return f"{name}/{key}" in library._impls


def _run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for value in torch.utils._pytree.tree_leaves((args, kwargs)):
        if isinstance(value, torch.Tensor) and value.__class__ is FakeCudaTensor:
            if value._device.retired:
                raise device_asserts.retired_error(value._device)
        elif isinstance(value, torch.Tensor) and type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return NotImplemented  # a wrapper subclass, or a FakeTensor
    for key in KEYS:
        if registered(op.func, key):
            # Python's dispatch left this key out. C++ calls kernels with it: writes are counted, views are views.
            with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
                return op.func._op_dk(getattr(torch._C.DispatchKey, key), *args, **kwargs)
    raise NotImplementedError(
        f"Could not run '{op.func.name()}' with arguments from the 'CUDA' backend. This could be because the operator "
        "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        "build)."
    )
