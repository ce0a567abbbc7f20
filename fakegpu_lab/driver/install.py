"""Everything that `enable` changes in torch, and how `disable` restores it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.utils._foreach_utils
from torch.optim.optimizer import _use_grad_for_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import fakegpu_lab.driver.op_sheet  # noqa: F401 - makes the rows
from fakegpu_lab.driver.autocast import scripted_regions
from fakegpu_lab.driver.base import changes, current, privateuse1
from fakegpu_lab.driver.dispatch import dispatcher, registered_kernels
from fakegpu_lab.driver.memory_report import host_memory
from fakegpu_lab.driver.random import generators
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
    torch.cuda.device,
    torch.cuda.StreamContext,
    torch.cuda.graph,
):
    for _method in (_mode.__enter__, _mode.__exit__):
        interrupts.whole(_method)  # else an interrupt on the way in would leave it switched on
interrupts.whole_but_for_users_code(_use_grad_for_differentiable(lambda: None))  # around an optimizer's step

patches = changes.patches
ROOMS = (
    "base.not_simulated", "autocast", "profiler", "tensor_api", "dispatch", "compile", "random", "ops", "autograd",
    "copies", "environment", "torch_cuda", "meta",
)  # fmt: skip
"""The rooms with rows of the table of changes. Where several wrap one function, a later room's wrapper is outside."""
_libraries: list[torch.library.Library] = []


@cache
def rows() -> list[changes.Change]:
    """The driver's part of the table of changes."""
    return changes.collected("fakegpu_lab.driver", ROOMS)


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
        changes.apply(rows())
        if not current.meta():
            host = host_memory.HostMemory()
            for card in machine.cards:
                card.allocator.device_memory.behind = host.require
    except BaseException:
        uninstall()
        raise


def uninstall() -> None:
    """Restore torch."""
    patches.undo()
    changes.lacking.clear()
    _destroy_libraries()
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        _libraries.extend(registered_kernels.refuse())
    current.machine = None
    current.ready = False


def _destroy_libraries() -> None:
    for library in _libraries:
        library._destroy()  # type: ignore[no-untyped-call]
    _libraries.clear()
