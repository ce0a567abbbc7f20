"""Gathers the facts of an out-of-memory error when it is raised, before the stack unwinds and frees memory."""

from __future__ import annotations

import sys
from inspect import CO_OPTIMIZED
from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.driver.memory_report.facts import Facts
from fakegpu_lab.driver.memory_report.largest_tensors import describe_tensors
from fakegpu_lab.driver.memory_report.program_position import locate
from fakegpu_lab.hardware.allocator.blocks import FREE
from fakegpu_lab.user_code.frames import walk

if TYPE_CHECKING:
    from fakegpu_lab.driver.memory_report.categories import Live
    from fakegpu_lab.hardware.device import Device

last: Facts | None = None
"""The facts of the last out-of-memory error since `forget`."""


def forget() -> None:
    """Forget the last error, because another program begins."""
    global last
    last = None


def watch(machine: object = None) -> None:
    """Gather the facts of every out-of-memory error from now on, on the machine that is enabled."""
    if current.machine is not None and observe not in cuda_messages.oom_observers:
        cuda_messages.oom_observers.append(observe)


def observe(device: int, asked: int, limit: int, free: int) -> None:
    """Gather the facts; an error is about to be raised (`cuda_messages.oom_observers`)."""
    global last
    last = None
    last = gather(current.devices()[device], asked, limit)


def gather(device: Device, asked: int, limit: int) -> Facts:
    """The facts at this moment."""
    machine = current.machine
    assert machine is not None  # there is a device
    live = categories.live()
    claims = categories.claims(machine, live)
    allocator = device.allocator
    free, total = allocator.memory_info()
    blocks = [block for segment in list(allocator.segments.values()) for block in segment.blocks()]
    pieces = [block.size for block in blocks if block.state == FREE]
    edges = [block.size for block in blocks if block.state == FREE and (block.prev is None or block.next is None)]
    reserved = allocator.reserved_bytes
    facts = Facts(
        device=device.index,
        name=device.profile.name,
        card=device.profile.id,
        spec=machine.spec.text,
        asked=asked,
        total=total,
        free=free,
        room=min(reserved + free, limit),
        allocated=allocator.allocated_bytes,
        reserved=reserved,
        pieces=len(pieces),
        largest_piece=max(pieces, default=0),
        edges=sum(edges),
        categories=claims.sums(device),
        grad_enabled=torch.is_grad_enabled(),
        autocast=torch.is_autocast_enabled("cuda"),
        expandable=allocator.settings.expandable_segments,
        recorded=device.timeline.recorder is not None or allocator.history is not None,
    )
    frames = list(walk(sys._getframe(1)))
    locate(facts, frames)
    _foresee_step(facts, device, live)
    describe_tensors(facts, device, live, claims, frames)
    if sys.version_info < (3, 13):  # f_locals keeps the values that were read, and would hold tensors
        for frame in frames:
            if frame.f_code.co_flags & CO_OPTIMIZED:
                frame.f_locals.clear()
    return facts


_STATE_COPIES = {"Adam": 2, "AdamW": 2, "RAdam": 2, "NAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1}
"""Copies of a parameter that an optimizer's state holds; `_state_copies` has SGD."""


def _foresee_step(facts: Facts, device: Device, live: Live) -> None:
    """Fill in what a whole step of training will still take: gradients and optimizer state."""
    here = [t for t in live.tensors if t._device.index == facts.device and not t._device.retired]
    trainable = [tensor for tensor in here if tensor.requires_grad and tensor.is_leaf]
    with gradient_lock.held() as may_look:
        facts.wanting_gradients = sum(tensor.nbytes for tensor in trainable if may_look and tensor.grad is None)
    facts.wanting_state = sum(_missing_state(device, optimizer) for optimizer in live.optimizers)


def _missing_state(device: Device, optimizer: torch.optim.Optimizer) -> int:
    """The bytes of state that an optimizer will still allocate for parameters on a device."""
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.__class__ is FakeCudaTensor]
    here = [p for p in parameters if p._device is device and p.requires_grad]
    return _state_copies(optimizer) * sum(p.nbytes for p in here if not optimizer.state.get(p))


def _state_copies(optimizer: torch.optim.Optimizer) -> int:
    name = type(optimizer).__name__
    if name == "SGD":
        return 1 if optimizer.defaults.get("momentum") else 0
    return _STATE_COPIES.get(name, 0)
