"""Describes the largest blocks of a device's memory by the tensors in them: names, categories, lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.driver.memory_report.facts import Holder
from fakegpu_lab.driver.memory_report.program_position import user_frames
from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, SHARED
from fakegpu_lab.hardware.memory_categories import ACTIVATIONS
from fakegpu_lab.user_code.frames import SHOWN, kind

if TYPE_CHECKING:
    from types import FrameType

    from fakegpu_lab.driver.memory_report.categories import Claims, Live
    from fakegpu_lab.driver.memory_report.facts import Facts
    from fakegpu_lab.hardware.device import Device

_MOST = 10
"""Tensors that are described."""


def describe_tensors(facts: Facts, device: Device, live: Live, claims: Claims, frames: list[FrameType]) -> None:
    """Fill in the largest blocks, and the variables that hold some."""
    names = _names(live)
    variables = _variables(frames)
    tensors = _one_for_each_block(device, live, names)
    for address, tensor in sorted(tensors.items(), key=lambda item: (-_block_bytes(item[1]), item[0])):
        nbytes = _block_bytes(tensor)
        claim, _ = claims.by_block[device].get(address, (categories.UNKNOWN, 0))
        category = categories.CATEGORY[claim]
        if category == ACTIVATIONS and tensor.dtype is torch.float32:
            facts.float32_activations += nbytes
        variable = variables.get(id(tensor), "")
        if variable and category in ("other", "inputs"):
            facts.variables[variable] = facts.variables.get(variable, 0) + nbytes
        if len(facts.largest) < _MOST:
            what = names.get(id(tensor)) or (f"the variable {variable}" if variable else "")
            dtype = str(tensor.dtype).removeprefix("torch.")
            line = _line(device, address, tensor)
            what = what or _origin(tensor, claim, facts.phase)
            facts.largest.append(Holder(nbytes, tuple(tensor.shape), dtype, category, what, line))


def _one_for_each_block(device: Device, live: Live, names: dict[int, str]) -> dict[int, FakeCudaTensor]:
    """By address, the most telling tensor of a block: one with a name, else with a grad_fn, else the largest."""
    found: dict[int, tuple[tuple[bool, bool, int], FakeCudaTensor]] = {}
    for tensor in live.tensors:
        block = tensor._buffer.block
        if tensor._device is not device or block is None or block.state not in (ALLOCATED, SHARED):
            continue
        rank = (id(tensor) in names, tensor.grad_fn is not None, tensor.nbytes)
        if block.address not in found or rank > found[block.address][0]:
            found[block.address] = rank, tensor
    return {address: tensor for address, (_, tensor) in found.items()}


def _variables(frames: list[FrameType]) -> dict[int, str]:
    """The names of variables in the user's code that are device tensors, by the tensor's id."""
    return {
        id(value): name
        for frame in reversed(user_frames(frames))
        for name, value in {**frame.f_globals, **frame.f_locals}.items()
        if value.__class__ is FakeCudaTensor and not name.startswith("_")
    }


def _origin(tensor: FakeCudaTensor, claim: int, phase: str) -> str:
    """What is known of a tensor without a name."""
    if tensor.grad_fn is not None:
        return f"the result of {tensor.grad_fn.name().partition('Backward')[0]}"
    if claim == categories.KEPT:
        return "saved for backward"
    return "of the optimizer's step itself" if phase == "optimizer" else ""


def _block_bytes(tensor: FakeCudaTensor) -> int:
    block = tensor._buffer.block
    return block.size if block is not None else 0


def _line(device: Device, address: int, tensor: FakeCudaTensor) -> str:
    """The user's line that took a block, from a recording or from the allocator's history."""
    recorder = device.timeline.recorder
    born = recorder.born(address) if recorder is not None else None
    if born is not None:
        code, number = born[2][2], born[2][3]
        return f"{code.co_filename}:{number}" if code is not None else ""
    for frame in getattr(tensor._buffer.block, "frames", None) or ():
        if kind(str(frame["filename"])) & SHOWN:
            return f"{frame['filename']}:{frame['line']}"
    return ""


def _names(live: Live) -> dict[int, str]:
    """By the tensor's id: a parameter's path, whose gradient it is, whose state."""
    names: dict[int, str] = {}
    _name_parameters(names, live.modules)
    with gradient_lock.held() as may_look:
        for tensor in live.tensors if may_look else ():
            if tensor.is_leaf and tensor.requires_grad:
                for grad in categories.parts(tensor.grad):
                    names[id(grad)] = f"the gradient of {names.get(id(tensor), 'a tensor')}"
    _name_states(names, live.optimizers)
    return names


def _name_parameters(names: dict[int, str], modules: list[torch.nn.Module]) -> None:
    children = {id(child) for module in modules for child in module.children()}
    for root in modules:
        if id(root) in children:
            continue
        for named in (root.named_parameters, root.named_buffers):
            for path, value in named():
                for tensor in categories.parts(value):
                    names.setdefault(id(tensor), f"{type(root).__name__}.{path}")


def _name_states(names: dict[int, str], optimizers: list[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        for parameter, entry in list(getattr(optimizer, "state", {}).items()):
            for key, value in entry.items() if isinstance(entry, dict) else ():
                for tensor in categories.parts(value):
                    names[id(tensor)] = f"{key} of {names.get(id(parameter), 'a tensor')}"
