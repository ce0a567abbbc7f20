"""Everything that `enable` changes in torch, and how `disable` restores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.utils._foreach_utils
from torch.optim.optimizer import _foreach_supported_types as _optimizer_types
from torch.optim.optimizer import _use_grad_for_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fakegpu_lab.driver.op_sheet  # noqa: F401 - makes the rows
from fakegpu_lab.driver import torch_cuda
from fakegpu_lab.driver.autocast import regions, scripted_regions
from fakegpu_lab.driver.autograd import backward, optimizers
from fakegpu_lab.driver.base import current, not_simulated, privateuse1
from fakegpu_lab.driver.base.patches import Patches
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.compile import export, graph_printing, torch_compile, torchscript
from fakegpu_lab.driver.copies import pinned_memory
from fakegpu_lab.driver.dispatch import dispatch_rules, dispatcher, registered_kernels
from fakegpu_lab.driver.environment import host_threads, loader_workers, program_clock, torch_internals
from fakegpu_lab.driver.memory_report import host_memory
from fakegpu_lab.driver.meta import assumed_values
from fakegpu_lab.driver.ops import convolution, linear
from fakegpu_lab.driver.ops.attention import choice
from fakegpu_lab.driver.profiler import benchmark_timer, torch_profiler
from fakegpu_lab.driver.random import generator_checks, generators
from fakegpu_lab.driver.tensor_api import (
    composite_functions,
    constructors,
    conversion,
    dlpack,
    interprocess,
    lazy_parameters,
    methods,
    serialization,
    storage,
    user_subclasses,
    wrapper_subclasses,
)
from fakegpu_lab.driver.torch_cuda import nvml_functions
from fakegpu_lab.hardware.time import clock
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

for _mode in (
    torch.no_grad,
    torch.enable_grad,
    torch.inference_mode,
    torch.autocast,
    TorchFunctionMode,
    TorchDispatchMode,
):
    for _method in (_mode.__enter__, _mode.__exit__):
        interrupts.whole(_method)  # else an interrupt on the way in would leave the mode switched on
interrupts.whole_but_for_users_code(_use_grad_for_differentiable(lambda: None))  # around an optimizer's step

patches = Patches()
_libraries: list[torch.library.Library] = []


def install(machine: Machine) -> None:
    """Make torch see `machine` as CUDA; `uninstall` undoes it, also if this raises half-way."""
    privateuse1.register()
    current.machine = machine
    current.thread.index = 0
    clock.reset()
    generators.forget()
    dispatcher.forget()
    _destroy_libraries()
    try:
        _libraries.extend(registered_kernels.register())
        _libraries.extend(scripted_regions.register())
        patches.set(torch.Tensor, "to", conversion.to)
        patches.set(torch.Tensor, "cuda", conversion.cuda)
        patches.set(torch.Tensor, "data", conversion.data)
        patches.set(torch.Tensor, "grad", methods.grad)
        patches.set(torch.Tensor, "type", methods.type_)
        patches.set(torch, "_has_compatible_shallow_copy_type", conversion.has_compatible_shallow_copy_type)
        patches.set(torch.utils, "swap_tensors", conversion.swap_tensors)
        patches.set(torch.autograd.graph, "_engine_run_backward", backward.engine_run_backward)
        patches.set(torch.autograd, "_engine_run_backward", backward.engine_run_backward)
        patches.set(torch.autograd.function.BackwardCFunction, "apply", backward.apply)
        patches.append(torch.utils._foreach_utils._foreach_supported_types, FakeCudaTensor)
        patches.append(_optimizer_types, FakeCudaTensor)
        regions.install(patches)
        benchmark_timer.install(patches)
        composite_functions.install(patches)
        torch_compile.install(patches)
        constructors.install(patches)
        linear.registration.install(patches)
        dispatch_rules.install(patches)
        dlpack.install(patches)
        export.install(patches)
        wrapper_subclasses.install(patches)
        generator_checks.install(patches)
        interprocess.install(patches)
        lazy_parameters.install(patches)
        nvml_functions.install(patches)
        optimizers.install(patches)
        pinned_memory.install(patches)
        torch_profiler.install(patches)
        torch_internals.install(patches)
        torchscript.install(patches)
        serialization.install(patches)
        graph_printing.install(patches)
        storage.install(patches)
        user_subclasses.install(patches)
        host_threads.install(patches)
        loader_workers.install(patches)
        not_simulated.install(patches)
        torch_cuda.install(patches)
        choice.install(patches)
        convolution.install(patches)
        if machine.clock == "simulated":
            program_clock.install(patches)
        if current.meta():
            assumed_values.install(patches)
        else:
            host = host_memory.HostMemory()
            for card in machine.cards:
                card.allocator.device_memory.behind = host.require
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Restore torch."""
    patches.undo()
    regions.uninstall()
    linear.registration.disable()
    _destroy_libraries()
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        _libraries.extend(registered_kernels.refuse())
    current.machine = None
    current.ready = False


def _destroy_libraries() -> None:
    for library in _libraries:
        library._destroy()  # type: ignore[no-untyped-call]
    _libraries.clear()
