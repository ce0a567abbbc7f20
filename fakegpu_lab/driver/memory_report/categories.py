"""What device memory is for, found out when somebody asks: nothing is noted while a program runs.

The live tensors, modules and optimizers of the process are looked up in Python's garbage collector, and a block of
memory is what the tensors over it say: the parameter of a module, the ``.grad`` of a leaf, an entry of an optimizer's
state, the result of a copy from the host, the result of an op with a ``grad_fn``. A tensor that no Python object refers
to is held by C++ alone: autograd saved it for backward (a dropout's mask). The model is
torch.profiler's `_memory_profiler.Category`; it decides from a record, this from what there is.

Simplified: a tensor that both Python and autograd hold, and that is none of the above, is "other"; gradients on their
way through backward count as activations, unless somebody watched them being made (`watching`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base import live_objects
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, SparseCudaTensor
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.memory_categories import NAMES, Categories

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine

# What a tensor says of its memory, the strongest word first; of several tensors over one block, the strongest counts.
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
"""Of what it says, the category."""

INPUT_KIND = "input"
"""`Buffer.kind` of memory that was filled from the host."""


class Found(NamedTuple):
    """The live objects that matter."""

    tensors: list[FakeCudaTensor]
    modules: list[torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]


def live() -> Found:
    """All live device tensors, modules and optimizers."""
    tensors, modules = {FakeCudaTensor, SparseCudaTensor}, live_objects.subclasses(torch.nn.Module)
    optimizers = live_objects.subclasses(torch.optim.Optimizer)
    found = Found([], [], [])
    for thing in live_objects.live(tensors | modules | optimizers):
        cls = type(thing)
        (found.tensors if cls in tensors else found.modules if cls in modules else found.optimizers).append(thing)
    return found


def parts(value: Any) -> Iterator[FakeCudaTensor]:
    """The device tensors in a value: itself, those of a list, those that a wrapper subclass (a DTensor) is made of."""
    if value.__class__ is FakeCudaTensor:
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from parts(item)
    elif isinstance(value, torch.Tensor) and type(value) is not torch.Tensor and hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        for name in names:
            yield from parts(getattr(value, name, None))


class Words:
    """What is said of each block of a machine's devices: by device, by address, (word, bytes)."""

    def __init__(self, machine: Machine) -> None:
        self.said: dict[Device, dict[int, tuple[int, int]]] = {device: {} for device in machine.cards}
        for device, said in self.said.items():
            for buffer in list(device.workspaces.values()):
                block = getattr(buffer, "block", None)
                if block is not None:
                    said[block.address] = (WORKSPACE, block.size)

    def say(self, tensor: FakeCudaTensor, word: int) -> None:
        """`tensor` says something of the memory that it lies in."""
        buffer = tensor._buffer
        block = buffer.block
        said = self.said.get(buffer.device)  # None: the device of a machine that is gone
        if block is None or said is None or not block.size:
            return
        before = said.get(block.address)
        if before is None or word < before[0]:
            said[block.address] = (word, block.size)

    def roots(self, modules: Iterable[torch.nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Modules say which tensors are parameters, optimizers which are their state."""
        for module in modules:
            for table in (vars(module).get("_parameters"), vars(module).get("_buffers")):
                for value in list((table or {}).values()):
                    for tensor in parts(value):
                        self.say(tensor, PARAMETER)
        for optimizer in optimizers:
            for entry in list(getattr(optimizer, "state", {}).values()):
                for value in list(entry.values()) if isinstance(entry, dict) else ():
                    for tensor in parts(value):
                        self.say(tensor, STATE)

    def tensor(self, tensor: FakeCudaTensor, word: int = UNKNOWN) -> None:
        """A tensor says what it is, at least `word`."""
        if getattr(tensor._buffer, "kind", "") == INPUT_KIND:
            word = min(word, INPUT)
        if tensor.requires_grad:
            if not tensor.is_leaf:
                word = min(word, RESULT if tensor._base is None else KEPT)  # w.t(), of a leaf w, is a result, too
            else:
                word = min(word, LEAF)
                for grad in parts(tensor.grad):
                    self.say(grad, GRADIENT)
        self.say(tensor, word)

    def sums(self, device: Device) -> Categories:
        """The device's bytes by category; of what nobody spoke, they are "other"."""
        found = dict.fromkeys(NAMES, 0)
        for word, nbytes in self.said[device].values():
            found[CATEGORY[word]] += nbytes
        found[memory_categories.OTHER] += device.allocator.allocated_bytes - sum(found.values())
        return Categories(**found)

    def unsaid(self, device: Device) -> int:
        """The allocated bytes of which nobody spoke."""
        return device.allocator.allocated_bytes - sum(nbytes for _, nbytes in self.said[device].values())


def _references(tensors: list[Any]) -> list[int]:
    return [sys.getrefcount(tensor) for tensor in tensors]


_ALONE = _references([torch.empty(0)])[0]
"""Of a tensor that only a list holds; it differs between Python versions."""


def kept_by_autograd(tensors: list[Any]) -> list[bool]:
    """Of tensors that a list holds, and nobody else who is not named here: whether only C++ holds them besides."""
    return [
        count == _ALONE + 1 and tensor._use_count() > 1
        for tensor, count in zip(tensors, _references(tensors), strict=True)
    ]


def words(machine: Machine, found: Found) -> Words:
    """What is said of the memory of `machine` by what was found alive."""
    kept = kept_by_autograd(found.tensors)
    said = Words(machine)
    said.roots(found.modules, found.optimizers)
    for tensor, saved in zip(found.tensors, kept, strict=True):
        said.tensor(tensor, KEPT if saved else UNKNOWN)
    return said


def by_category(machine: Machine) -> dict[Device, Categories]:
    """The allocated bytes of every card by what they are for; they add up to ``memory_allocated``."""
    said = words(machine, live())
    return {device: said.sums(device) for device in machine.cards}
