"""Sorts device memory into categories, from the objects alive at the moment; a running program records nothing.

The live tensors, modules and optimizers of the process come from Python's garbage collector. Each tensor *claims* a
category for its block: the parameter of a module, the ``.grad`` of a leaf, an entry of an optimizer's state, the result
of a copy from the host, the result of an op with a ``grad_fn``. A tensor that no Python object refers to is held by C++
alone: autograd saved it for backward (a dropout mask). The categories are those of torch.profiler's
`_memory_profiler.Category`, which takes them from a record instead.

While other threads use the devices, their tensors cannot be examined (`autograd.gradient_lock`): each block in use then
keeps the category that it had when they last could.

Simplified: a tensor that both Python and autograd hold, and that is none of the above, is "other"; gradients on their
way through backward count as activations, unless `live_categories` saw them being made.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.base import live_objects
from fakegpu_lab.driver.base.tensor import DEVICE_TENSORS, FakeCudaTensor
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.memory_categories import NAMES, Categories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine

# Claims, the strongest first. If several tensors lie in one block, the strongest claim counts.
WORKSPACE, PARAMETER, GRADIENT, STATE, INPUT, RESULT, LEAF, KEPT, PASSING, UNKNOWN = range(10)
CATEGORY = (
    memory_categories.WORKSPACE,
    memory_categories.PARAMETERS,
    memory_categories.GRADIENTS,
    memory_categories.OPTIMIZER_STATE,
    memory_categories.INPUTS,
    memory_categories.ACTIVATIONS,
    memory_categories.PARAMETERS,
    memory_categories.ACTIVATIONS,
    memory_categories.GRADIENTS,
    memory_categories.OTHER,
)
"""The category by claim."""

INPUT_KIND = "input"
"""`Buffer.kind` of memory that was filled from the host."""

_last_claims: dict[Device, dict[int, tuple[int, int]]] = {}
"""The claims when the tensors could last be examined: by device, by address, (claim, bytes)."""


_FINDER = live_objects.Finder(torch.Tensor, torch.nn.Module, torch.optim.Optimizer)
"""It finds tensors on the host as well, because a tensor's class may change when it moves (`conversion.become`)."""


class Live(NamedTuple):
    """Live device tensors, modules and optimizers."""

    tensors: list[FakeCudaTensor]
    modules: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]


def live() -> Live:
    """All live device tensors, modules and optimizers; none while other threads use the devices."""
    if not gradient_lock.alone():
        return Live([], [], [])
    found = Live([], [], [])
    for thing in _FINDER():
        cls = type(thing)
        if cls in DEVICE_TENSORS:
            found.tensors.append(thing)
        elif issubclass(cls, torch.nn.Module):
            found.modules.append(thing)
        elif issubclass(cls, torch.optim.Optimizer):
            found.optimizers.append(thing)
    return found


def parts(value: Any) -> Iterator[FakeCudaTensor]:
    """The device tensors in a value: itself, those in a list, those inside a wrapper subclass (a DTensor)."""
    if value.__class__ is FakeCudaTensor:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from parts(item)
    elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        for name in names:
            yield from parts(getattr(value, name, None))


class Claims:
    """The strongest claim to each block of a machine's devices: by device, by address, (claim, bytes).

    `buffers` has the storages that were claimed.
    """

    def __init__(self, machine: Machine) -> None:
        self.by_block: dict[Device, dict[int, tuple[int, int]]] = {device: {} for device in machine.cards}
        self.buffers: set[Buffer] = set()
        for device, blocks in self.by_block.items():
            for buffer in list(device.workspaces.values()):
                block = getattr(buffer, "block", None)
                if block is not None:
                    blocks[block.address] = (WORKSPACE, block.size)

    def add(self, tensor: FakeCudaTensor, claim: int) -> None:
        """Add a claim to the block that `tensor` lies in."""
        buffer = tensor._buffer
        block = buffer.block
        blocks = self.by_block.get(buffer.device)  # None: the device of a machine that is gone
        if block is None or blocks is None or not block.size:
            return
        before = blocks.get(block.address)
        if before is None or claim < before[0]:
            blocks[block.address] = (claim, block.size)
            self.buffers.add(buffer)

    def add_roots(self, modules: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Claim the parameters of modules, their gradients, and the state of optimizers.

        A sharded parameter (a DTensor) is no device tensor itself, so its gradient is found only here.
        """
        for module in modules:
            for table in (vars(module).get("_parameters"), vars(module).get("_buffers")):
                for value in list((table or {}).values()):
                    for tensor in parts(value):
                        self.add(tensor, PARAMETER)
        self._add_gradients(modules)
        for optimizer in optimizers:
            for entry in list(getattr(optimizer, "state", {}).values()):
                for value in list(entry.values()) if isinstance(entry, dict) else ():
                    for tensor in parts(value):
                        self.add(tensor, STATE)

    def _add_gradients(self, modules: Iterable[torch.nn.Module]) -> None:
        with gradient_lock.held() as may_look:
            for module in modules if may_look else ():
                for parameter in list((vars(module).get("_parameters") or {}).values()):
                    for grad in parts(parameter.grad) if parameter is not None and parameter.is_leaf else ():
                        self.add(grad, GRADIENT)

    def add_tensors(self, tensors: Iterable[tuple[FakeCudaTensor, int]]) -> None:
        """Add the claims that the tensors' own attributes make, each at least the claim given with it."""
        with gradient_lock.held() as may_look:
            for tensor, claim in tensors:
                self._add_tensor(tensor, claim, may_look)
        if may_look:
            _last_claims.clear()
            _last_claims.update(self.by_block)

    def _add_tensor(self, tensor: FakeCudaTensor, claim: int, may_look: bool) -> None:
        if getattr(tensor._buffer, "kind", "") == INPUT_KIND:
            claim = min(claim, INPUT)
        if tensor.requires_grad:
            if not tensor.is_leaf:
                claim = min(claim, KEPT if tensor._is_view() else RESULT)  # w.t(), of a leaf w, is a result, too
            else:
                claim = min(claim, LEAF)
                for grad in parts(tensor.grad) if may_look else ():
                    self.add(grad, GRADIENT)
        elif not may_look:
            buffer = tensor._buffer
            block = buffer.block
            known = _last_claims.get(buffer.device, {}).get(block.address) if block is not None else None
            if block is not None and known == (GRADIENT, block.size):
                claim = min(claim, GRADIENT)
        self.add(tensor, claim)

    def sums(self, device: Device) -> Categories:
        """The device's bytes by category; unclaimed ones are "other"."""
        found = dict.fromkeys(NAMES, 0)
        for claim, nbytes in self.by_block[device].values():
            found[CATEGORY[claim]] += nbytes
        unclaimed = device.allocator.allocated_bytes - sum(found.values())  # below 0 where another thread freed some
        found[memory_categories.OTHER] = max(0, found[memory_categories.OTHER] + unclaimed)
        return Categories(**found)

    def unclaimed(self, device: Device) -> int:
        """The allocated bytes without a claim."""
        return device.allocator.allocated_bytes - sum(nbytes for _, nbytes in self.by_block[device].values())


def _reference_counts(tensors: list[Any]) -> list[int]:
    return [sys.getrefcount(tensor) for tensor in tensors]


_ONLY_IN_LIST = _reference_counts([torch.empty(0)])[0]
"""The reference count of a tensor that only a list holds; it differs between Python versions."""


def kept_by_autograd(tensors: list[Any]) -> list[bool]:
    """For each tensor: whether, apart from this list, only C++ holds it. No other variable may refer to the tensors."""
    return [
        count == _ONLY_IN_LIST + 1 and tensor._use_count() > 1
        for tensor, count in zip(tensors, _reference_counts(tensors), strict=True)
    ]


def claims(machine: Machine, found: Live) -> Claims:
    """The claims of the objects `found` to the memory of `machine`."""
    kept = kept_by_autograd(found.tensors)
    made = Claims(machine)
    made.add_roots(found.modules, found.optimizers)
    made.add_tensors((tensor, KEPT if saved else UNKNOWN) for tensor, saved in zip(found.tensors, kept, strict=True))
    return made


def of_models(
    machine: Machine, models: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]
) -> dict[int, str]:
    """By address, what the blocks of these models and optimizers are for: parameters, gradients, optimizer state."""
    made = Claims(machine)
    made.add_roots([module for model in models for module in model.modules()], optimizers)
    return {address: CATEGORY[claim] for blocks in made.by_block.values() for address, (claim, _) in blocks.items()}


def _latest_claims(machine: Machine) -> Claims:
    """The claims to the blocks in use, as they were when the tensors could last be examined."""
    made = Claims(machine)
    for device, now in made.by_block.items():
        known = _last_claims.get(device, {})
        for address, nbytes in device.allocator.in_use():
            claim, then = known.get(address, (UNKNOWN, nbytes))
            now.setdefault(address, (claim if then == nbytes else UNKNOWN, nbytes))
    return made


def by_category(machine: Machine) -> dict[Device, Categories]:
    """The allocated bytes of every card by category; they add up to ``memory_allocated``."""
    found = claims(machine, live()) if gradient_lock.alone() else _latest_claims(machine)
    return {device: found.sums(device) for device in machine.cards}
