"""What there is to know at the moment when a device is out of memory, before the stack unwinds and lets go of it.

Kept as words and numbers only: facts that held tensors would hold the memory that is wanting.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories as holdings
from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, FREE, SHARED
from fakegpu_lab.hardware.memory_categories import ACTIVATIONS, Categories

if TYPE_CHECKING:
    from types import FrameType

    from fakegpu_lab.driver.memory_report.categories import Found, Words
    from fakegpu_lab.hardware.device import Device

LARGEST = 10
"""Tensors that are told one by one."""

_node: Any = torch._C._current_autograd_node


@dataclass(frozen=True)
class Holder:
    """A block of memory and the tensor over it.

    Attributes
    ----------
    what
        Where it belongs: a parameter's path, whose gradient or state it is, the op whose result, a variable's name.
    line
        Where it was made, ``file:number``; empty if nobody recorded.
    """

    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    category: str
    what: str
    line: str

    @property
    def grown(self) -> bool:
        """Whether it grows with the batch."""
        return self.category == ACTIVATIONS


@dataclass
class Facts:
    """All sizes in bytes.

    Attributes
    ----------
    asked
        What was asked of the device; `room` is what PyTorch can have of it at all, `allocated` what tensors held.
    pieces, largest_piece, edges
        The free blocks within what is reserved; the bytes of those at a segment's end.
    phase
        ``"forward"``, ``"backward"``, ``"optimizer"``, ``"move"`` (of a module to the device) or ``"other"``.
    module, progress
        The module whose forward ran, by its path; the part of the model's leaf modules that had run by then.
    blocks, boundary
        How many blocks of one class follow each other in the model, and the bytes that go from one to the next.
    batch
        The first extent of what was given to the model; 0 if that is unknown.
    wanting_gradients, wanting_state
        Bytes of gradients and of optimizer state that a step needs and that are not there yet.
    float32_activations
        Of the activations, those in float32.
    variables
        By name, the bytes of tensors that only a variable of the program holds.
    """

    device: int
    name: str
    spec: str
    asked: int
    total: int
    free: int
    room: int
    allocated: int
    reserved: int
    pieces: int
    largest_piece: int
    edges: int
    categories: Categories
    largest: list[Holder] = field(default_factory=list)
    phase: str = "other"
    op: str = ""
    line: str = ""
    module: str = ""
    progress: float = 1.0
    training: bool = True
    grad_enabled: bool = True
    autocast: bool = False
    blocks: int = 0
    block_name: str = ""
    boundary: int = 0
    batch: int = 0
    wanting_gradients: int = 0
    wanting_state: int = 0
    float32_activations: int = 0
    variables: dict[str, int] = field(default_factory=dict)
    expandable: bool = False
    recorded: bool = False


last: Facts | None = None
"""Of the last out-of-memory error since `forget`."""


def forget() -> None:
    """Another program begins."""
    global last
    last = None


def watch(machine: object = None) -> None:
    """Take down the facts of every out-of-memory error from now on, on the machine that is enabled."""
    if current.machine is not None and observe not in cuda_messages.oom_observers:
        cuda_messages.oom_observers.append(observe)


def observe(device: int, asked: int, limit: int, free: int) -> None:
    """An out-of-memory error is about to be raised (`cuda_messages.oom_observers`)."""
    global last
    last = None
    last = gather(current.devices()[device], asked, limit)


def gather(device: Device, asked: int, limit: int) -> Facts:
    """The facts, now."""
    machine = current.machine
    assert machine is not None  # there is a device
    found = holdings.live()
    said = holdings.words(machine, found)
    allocator = device.allocator
    free, total = allocator.memory_info()
    blocks = [block for segment in list(allocator.segments.values()) for block in segment.blocks()]
    pieces = [block.size for block in blocks if block.state == FREE]
    edges = [block.size for block in blocks if block.state == FREE and (block.prev is None or block.next is None)]
    reserved = allocator.reserved_bytes
    facts = Facts(
        device=device.index,
        name=device.profile.name,
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
        categories=said.sums(device),
        grad_enabled=torch.is_grad_enabled(),
        autocast=torch.is_autocast_enabled("cuda"),
        expandable=allocator.settings.expandable_segments,
        recorded=device.timeline.recorder is not None or allocator.history is not None,
    )
    frames = list(_frames())
    _place(facts, frames)
    _training(facts, device, found)
    _tensors(facts, device, found, said, frames)
    if sys.version_info < (3, 13):  # what was read of a function's variables stays with its frame, and holds them
        for frame in frames:
            if frame.f_code.co_flags & CO_OPTIMIZED:
                frame.f_locals.clear()
    return facts


def _frames() -> list[FrameType]:
    """The stack above us, innermost first."""
    frames = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _place(facts: Facts, frames: list[FrameType]) -> None:
    """Where in the program, and in the model."""
    users = [frame for frame in frames if recording.is_users(frame.f_code.co_filename)]
    if users:
        facts.line = f"{users[0].f_code.co_filename}:{users[0].f_lineno}"
    forwards = [
        (module, frame)
        for frame in reversed(frames)
        if frame.f_code.co_name == "forward" and isinstance(module := frame.f_locals.get("self"), torch.nn.Module)
    ]
    node = _node()
    names = {(frame.f_code.co_name, frame.f_globals.get("__name__", "")) for frame in frames}
    if node is not None:
        facts.phase = "backward"
        facts.op = node.name()
    elif forwards:
        facts.phase = "forward"
    elif any(name == "step" and where.startswith("torch.optim") for name, where in names):
        facts.phase = "optimizer"
    elif ("_apply", "torch.nn.modules.module") in names:
        facts.phase = "move"
    ops = (frame.f_locals.get("func") for frame in frames)
    facts.op = facts.op or next((str(op._schema.name) for op in ops if isinstance(op, torch._ops.OpOverload)), "")
    if forwards:
        _model(facts, forwards)


def _model(facts: Facts, forwards: list[tuple[torch.nn.Module, FrameType]]) -> None:
    root, frame = forwards[0]
    facts.training = root.training
    first = next((value for value in _arguments(frame) if isinstance(value, torch.Tensor) and value.dim()), None)
    facts.batch = first.shape[0] if first is not None else 0
    path = type(root).__name__
    for (outer, _), (inner, _) in pairwise(forwards):
        known = next((name for name, child in outer.named_modules() if child is inner), type(inner).__name__)
        path = f"{path}.{known}" if known else path
    facts.module = path
    leaves = [module for module in root.modules() if not any(True for _ in module.children())]
    at = forwards[-1][0]
    inside = [module for module in at.modules() if module in leaves]
    if leaves and inside:
        ended = leaves.index(inside[0]) + (1 if len(inside) == 1 else len(inside) / 2)
        facts.progress = min(max(ended / len(leaves), 0.02), 1.0)
    chains = [list(m.children()) for m in root.modules() if isinstance(m, (torch.nn.Sequential, torch.nn.ModuleList))]
    alike = [chain for chain in chains if len(chain) > 1 and len({type(child) for child in chain}) == 1]
    if alike:
        chain = max(alike, key=len)
        facts.blocks, facts.block_name = len(chain), type(chain[0]).__name__
        held = [frame for module, frame in forwards if any(module is block for block in chain)]
        passed = [value for frame in held for value in _arguments(frame) if isinstance(value, torch.Tensor)]
        facts.boundary = passed[0].nbytes if passed else 0


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[1 : code.co_argcount]]


def _training(facts: Facts, device: Device, found: Found) -> None:
    """What a whole step of training will want besides."""
    trainable = [
        tensor
        for tensor in found.tensors
        if tensor._device.index == facts.device
        and tensor.requires_grad
        and tensor.is_leaf
        and not tensor._device.retired
    ]
    facts.wanting_gradients = sum(tensor.nbytes for tensor in trainable if tensor.grad is None)
    for optimizer in found.optimizers:
        copies = {"Adam": 2, "AdamW": 2, "RAdam": 2, "NAdam": 2, "Adamax": 2, "RMSprop": 1, "Adagrad": 1}
        each = copies.get(type(optimizer).__name__, 0)
        if type(optimizer).__name__ == "SGD":
            each = 1 if optimizer.defaults.get("momentum") else 0
        mine = [p for group in optimizer.param_groups for p in group["params"] if p.__class__ is FakeCudaTensor]
        mine = [p for p in mine if p._device is device and p.requires_grad]
        facts.wanting_state += sum(each * p.nbytes for p in mine if not optimizer.state.get(p))


def _tensors(facts: Facts, device: Device, found: Found, said: Words, frames: list[FrameType]) -> None:
    """The largest blocks, each told by a tensor over it, one with a name if there is; the variables that hold some."""
    names = _names(found)
    over: dict[int, tuple[tuple[bool, bool, int], FakeCudaTensor]] = {}
    for tensor in found.tensors:
        block = tensor._buffer.block
        if tensor._device is not device or block is None or block.state not in (ALLOCATED, SHARED):
            continue
        telling = (id(tensor) in names, tensor.grad_fn is not None, tensor.nbytes)
        if block.address not in over or telling > over[block.address][0]:
            over[block.address] = telling, tensor
    scopes = [frame for frame in frames if recording.is_users(frame.f_code.co_filename)]
    variables = {id(v): k for frame in reversed(scopes) for k, v in {**frame.f_globals, **frame.f_locals}.items()
                 if v.__class__ is FakeCudaTensor and not k.startswith("_")}  # fmt: skip
    for address, (_, tensor) in sorted(over.items(), key=lambda item: (-_size(item[1][1]), item[0])):
        word, _ = said.said[device].get(address, (holdings.UNKNOWN, 0))
        category = holdings.CATEGORY[word]
        if category == ACTIVATIONS and tensor.dtype is torch.float32:
            facts.float32_activations += _size(tensor)
        name = variables.get(id(tensor), "")
        if name and category in ("other", "inputs"):
            facts.variables[name] = facts.variables.get(name, 0) + _size(tensor)
        if len(facts.largest) < LARGEST:
            what = names.get(id(tensor)) or (f"the variable {name}" if name else "")
            if not what and tensor.grad_fn is not None:
                what = f"the result of {tensor.grad_fn.name().partition('Backward')[0]}"
            if not what and word == holdings.KEPT:
                what = "saved for backward"
            if not what and facts.phase == "optimizer":
                what = "of the optimizer's step itself"
            facts.largest.append(
                Holder(_size(tensor), tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), category, what,
                       _line(device, address, tensor))
            )  # fmt: skip


def _size(tensor: FakeCudaTensor) -> int:
    block = tensor._buffer.block
    return block.size if block is not None else 0


def _line(device: Device, address: int, tensor: FakeCudaTensor) -> str:
    recorder = device.timeline.recorder
    born = recorder.born(address) if recorder is not None else None
    if born is not None:
        code, number = born[2][2], born[2][3]
        return f"{code.co_filename}:{number}" if code is not None else ""
    for frame in getattr(tensor._buffer.block, "frames", None) or ():
        if recording.is_users(str(frame["filename"])):
            return f"{frame['filename']}:{frame['line']}"
    return ""


def _names(found: Found) -> dict[int, str]:
    """By the tensor's id: a parameter's path, whose gradient, whose state."""
    children = {id(child) for module in found.modules for child in module.children()}
    names: dict[int, str] = {}
    for root in found.modules:
        if id(root) in children:
            continue
        for kind in (root.named_parameters, root.named_buffers):
            for path, value in kind():
                for tensor in holdings.parts(value):
                    names.setdefault(id(tensor), f"{type(root).__name__}.{path}")
    for tensor in found.tensors:
        if tensor.is_leaf and tensor.requires_grad:
            for grad in holdings.parts(tensor.grad):
                names[id(grad)] = f"the gradient of {names.get(id(tensor), 'a tensor')}"
    for optimizer in found.optimizers:
        for parameter, entry in list(getattr(optimizer, "state", {}).items()):
            for key, value in entry.items() if isinstance(entry, dict) else ():
                for tensor in holdings.parts(value):
                    names[id(tensor)] = f"{key} of {names.get(id(parameter), 'a tensor')}"
    return names
