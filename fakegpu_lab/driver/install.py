"""Everything that `enable` changes in torch, and how `disable` restores it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.utils._foreach_utils

import fakegpu_lab.driver.op_sheet  # noqa: F401 - makes the rows
from fakegpu_lab.driver.autocast import scripted_regions
from fakegpu_lab.driver.base import changes, current, privateuse1
from fakegpu_lab.driver.compile import without_dynamo, without_sympy
from fakegpu_lab.driver.dispatch import dispatcher, registered_kernels
from fakegpu_lab.driver.memory_report import host_memory
from fakegpu_lab.driver.random import generators
from fakegpu_lab.hardware.time import clock

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

patches = changes.patches
ROOMS = (
    "autocast", "profiler", "tensor_api", "dispatch", "compile", "random", "ops", "autograd", "copies", "environment",
    "torch_cuda", "meta",
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
        without_dynamo.install(patches)
        without_sympy.install(patches)
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
