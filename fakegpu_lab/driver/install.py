"""Everything that is changed in torch while a machine is enabled, and its way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.utils._foreach_utils
from torch.optim.optimizer import _foreach_supported_types as _optimizer_types

from fakegpu_lab.driver import (
    assumptions,
    autocast_script,
    autocast_state,
    autograd,
    benchmarking,
    compiling,
    composites,
    constructors,
    conversion,
    current,
    dispatch,
    dispatch_rules,
    dlpack,
    generator_checks,
    kernels,
    lazy,
    linear,
    management,
    methods,
    nested,
    optimizers,
    pinned,
    privateuse1,
    profiling,
    quiet,
    random,
    scripting,
    sdp_choice,
    serialization,
    shown,
    storage,
    subclasses,
    threads,
    torch_cuda,
    tracing,
    wrappers,
)
from fakegpu_lab.driver.patches import Patches
from fakegpu_lab.driver.tensor import FakeCudaTensor
from fakegpu_lab.hardware import clock

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

__all__ = ["dispatch", "install", "methods", "patches", "uninstall"]

patches = Patches()
_libraries: list[torch.library.Library] = []


def install(machine: Machine) -> None:
    """Make torch see `machine` as CUDA. Undone by `uninstall`, also if this raises half-way."""
    privateuse1.register()
    current.machine = machine
    current.thread.index = 0
    clock.reset()
    random.forget()
    dispatch.forget()
    _destroy_libraries()
    try:
        _libraries.extend(kernels.register())
        _libraries.extend(autocast_script.register())
        patches.set(torch.Tensor, "to", conversion.to)
        patches.set(torch.Tensor, "cuda", conversion.cuda)
        patches.set(torch.Tensor, "data", conversion.data)
        patches.set(torch.Tensor, "grad", methods.grad)
        patches.set(torch.Tensor, "type", methods.type_)
        patches.set(torch, "_has_compatible_shallow_copy_type", conversion.has_compatible_shallow_copy_type)
        patches.set(torch.utils, "swap_tensors", conversion.swap_tensors)
        patches.set(torch.autograd.graph, "_engine_run_backward", autograd.engine_run_backward)
        patches.set(torch.autograd, "_engine_run_backward", autograd.engine_run_backward)
        patches.set(torch.autograd.function.BackwardCFunction, "apply", autograd.apply)
        patches.append(torch.utils._foreach_utils._foreach_supported_types, FakeCudaTensor)
        patches.append(_optimizer_types, FakeCudaTensor)
        autocast_state.install(patches)
        benchmarking.install(patches)
        composites.install(patches)
        compiling.install(patches)
        constructors.install(patches)
        linear.registration.install(patches)
        dispatch_rules.install(patches)
        dlpack.install(patches)
        tracing.install(patches)
        wrappers.install(patches)
        generator_checks.install(patches)
        lazy.install(patches)
        management.install(patches)
        nested.install(patches)
        optimizers.install(patches)
        pinned.install(patches)
        profiling.install(patches)
        quiet.install(patches)
        scripting.install(patches)
        serialization.install(patches)
        shown.install(patches)
        storage.install(patches)
        subclasses.install(patches)
        threads.install(patches)
        torch_cuda.install(patches)
        sdp_choice.install(patches)
        if current.meta():
            assumptions.install(patches)
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Put torch back as it was."""
    patches.undo()
    autocast_state.uninstall()
    compiling.restore_stance()
    linear.registration.disable()
    _destroy_libraries()
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        _libraries.extend(kernels.refuse())
    current.machine = None
    current.ready = False


def _destroy_libraries() -> None:
    for library in _libraries:
        library._destroy()  # type: ignore[no-untyped-call]
    _libraries.clear()
