"""The facts of an out-of-memory error, gathered when it is raised, before the stack unwinds and frees memory.

They are texts and numbers: facts that held tensors would hold the memory that ran out. They say where the program is
(line, op, phase, the place in its model), and describe the largest blocks by the tensors in them: names, categories,
lines, and the variables and containers that hold them.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter, deque
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.autograd import gradient_lock
from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.memory_report import categories
from fakegpu_lab.hardware.allocator.blocks import ALLOCATED, FREE, SHARED
from fakegpu_lab.hardware.memory_categories import ACTIVATIONS, Categories
from fakegpu_lab.user_code import environment
from fakegpu_lab.user_code.frames import SHOWN, kind, line_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from fakegpu_lab.driver.memory_report.categories import Claims, Live
    from fakegpu_lab.hardware.device import Device

    Forward = tuple[torch.nn.Module, FrameType]


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


@dataclass(frozen=True)
class Holder:
    """A block of memory, described by a tensor in it.

    Attributes
    ----------
    what
        What the tensor is: a parameter's path, whose gradient or state, which op's result, or a variable's name.
    line
        Where it was made, ``file:number``; empty without a recording.
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
    """What is known of an out-of-memory error. All sizes are in bytes.

    Attributes
    ----------
    card
        The id of the card's profile in the catalogue; `spec` is the whole machine's.
    asked
        The size of the request; `room` is the most that PyTorch can have of the device, `allocated` what tensors held.
    pieces, largest_piece, edges
        Number and largest of the free blocks in reserved memory; the bytes of those at a segment's end.
    phase
        ``"forward"``, ``"backward"``, ``"optimizer"``, ``"move"`` (of a module to the device) or ``"other"``.
    module, progress
        The path of the module whose forward ran; the part of the model's leaf modules that had run by then.
    blocks, boundary
        The number of consecutive blocks of one class in the model, and the bytes passed from one to the next.
    batch
        The first dimension of the model's input; 0 if that is unknown.
    wanting_gradients, wanting_state
        Gradients and optimizer state that a step needs and that are not allocated yet.
    float32_activations
        The part of the activations that is in float32.
    variables
        By name, the bytes of tensors that only a variable of the program holds.
    """

    device: int
    name: str
    card: str
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

    @property
    def too_large(self) -> bool:
        """Whether the one request is larger than all the memory that PyTorch can have: nothing to free helps."""
        return self.asked > self.room


_current_node: Any = torch._C._current_autograd_node


def user_frames(frames: list[FrameType]) -> list[FrameType]:
    """The frames of the user's program."""
    return [frame for frame in frames if kind(frame.f_code.co_filename) & SHOWN]


def locate(facts: Facts, frames: list[FrameType]) -> None:
    """Fill in where in the program, and in the model; `frames` is the stack, innermost first."""
    users = user_frames(frames)
    if users:
        facts.line = line_of(users[0])
    forwards = [
        (module, frame)
        for frame in reversed(frames)
        if frame.f_code.co_name == "forward" and isinstance(module := frame.f_locals.get("self"), torch.nn.Module)
    ]
    node = _current_node()
    facts.phase = "backward" if node is not None else "forward" if forwards else _phase_outside_model(frames)
    facts.op = (node.name() if node is not None else "") or _op(frames)
    if forwards:
        _describe_model(facts, forwards)


def _phase_outside_model(frames: list[FrameType]) -> str:
    names = {(frame.f_code.co_name, frame.f_globals.get("__name__", "")) for frame in frames}
    if any(name == "step" and where.startswith("torch.optim") for name, where in names):
        return "optimizer"
    return "move" if ("_apply", "torch.nn.modules.module") in names else "other"


def _op(frames: list[FrameType]) -> str:
    """The name of the innermost op; empty if there is none."""
    ops = (frame.f_locals.get("func") for frame in frames)
    return next((str(op._schema.name) for op in ops if isinstance(op, torch._ops.OpOverload)), "")


def _describe_model(facts: Facts, forwards: list[Forward]) -> None:
    """Fill in the model: `forwards` are the modules whose forward runs, outermost first."""
    root, frame = forwards[0]
    facts.training = root.training
    first = next((value for value in _arguments(frame) if isinstance(value, torch.Tensor) and value.dim()), None)
    facts.batch = first.shape[0] if first is not None else 0
    facts.module = _path(forwards)
    facts.progress = _progress(root, forwards[-1][0])
    chain = _longest_chain(root)
    if chain:
        facts.blocks, facts.block_name = len(chain), type(chain[0]).__name__
        inside = [frame for module, frame in forwards if any(module is block for block in chain)]
        passed = [value for frame in inside for value in _arguments(frame) if isinstance(value, torch.Tensor)]
        facts.boundary = passed[0].nbytes if passed else 0


def _arguments(frame: FrameType) -> list[Any]:
    code = frame.f_code
    return [frame.f_locals.get(name) for name in code.co_varnames[1 : code.co_argcount]]


def _path(forwards: list[Forward]) -> str:
    path = type(forwards[0][0]).__name__
    for (outer, _), (inner, _) in pairwise(forwards):
        name = next((name for name, child in outer.named_modules() if child is inner), type(inner).__name__)
        path = f"{path}.{name}" if name else path
    return path


def _progress(root: torch.nn.Module, current: torch.nn.Module) -> float:
    """The part of the model's leaf modules that has run; of a module with several leaves, half."""
    leaves = [module for module in root.modules() if not any(True for _ in module.children())]
    inside = [module for module in current.modules() if module in leaves]
    if not (leaves and inside):
        return 1.0
    ended = leaves.index(inside[0]) + (1 if len(inside) == 1 else len(inside) / 2)
    return min(max(ended / len(leaves), 0.02), 1.0)


def _longest_chain(root: torch.nn.Module) -> list[torch.nn.Module]:
    """The longest sequence of modules of one class in a container; empty if there is none."""
    chains = [list(m.children()) for m in root.modules() if isinstance(m, (torch.nn.Sequential, torch.nn.ModuleList))]
    alike = [chain for chain in chains if len(chain) > 1 and len({type(child) for child in chain}) == 1]
    return max(alike, key=len, default=[])


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


_FEW = 64
"""At most this many tensors' holders are looked up."""


def training() -> tuple[list[torch.optim.Optimizer], list[torch.Tensor]]:
    """All live optimizers, and the device tensors that have gradients."""
    found = categories.live()
    with gradient_lock.held() as may_look:
        trained: list[torch.Tensor]
        trained = [t for t in found.tensors if may_look and t.requires_grad and t.is_leaf and t.grad is not None]
    return found.optimizers, trained


def holder(addresses: Iterable[int]) -> str:
    """Name what holds the memory at these addresses, such as ``the list `losses```; empty if it is not found.

    Memory without a Python tensor is held by autograd: then tensors whose graphs may hold it are looked up, which are
    the non-leaves that a program keeps.
    """
    wanted = set(addresses)
    tensors = categories.live().tensors
    here = [t for t in tensors if t._buffer.block is not None and t._buffer.block.address in wanted]
    for found in ([t for t in here if t.grad_fn is not None], here, [t for t in tensors if t.grad_fn is not None]):
        names = Counter(name for tensor in found[:_FEW] if (name := _named(tensor, (found, here, tensors))))
        if names:
            return names.most_common(1)[0][0]
    return ""


def _named(tensor: FakeCudaTensor, own_lists: tuple[Any, ...]) -> str:
    """The variable or container that refers to a tensor, other than this module's own lists."""
    own = {id(one) for one in own_lists}
    for referrer in gc.get_referrers(tensor):
        if id(referrer) in own:
            continue
        if isinstance(referrer, (list, deque, tuple, set)):
            name = _variable(referrer)
            if name:
                return f"the {type(referrer).__name__} `{name}`"
        if isinstance(referrer, dict):
            name = next((str(key) for key, value in list(referrer.items()) if value is tensor), "")
            if "__name__" in referrer or "get_ipython" in referrer:
                if name and not name.startswith("_"):
                    return f"the variable `{name}`"
            elif owner := _variable(referrer):
                return f"the dict `{owner}`"
    name = _variable(tensor)
    return f"the variable `{name}`" if name else ""


def _variable(thing: object) -> str:
    """The variable of the main program, the notebook or a running frame that is `thing`; empty if there is none."""
    spaces: list[dict[str, Any]] = [vars(sys.modules["__main__"])]
    shell = environment.shell()
    if shell is not None:
        spaces.append(shell.user_ns)
    spaces += [frame.f_locals for frame in walk(sys._getframe(1)) if kind(frame.f_code.co_filename) & SHOWN]
    for space in spaces:
        for name, value in list(space.items()):
            if value is thing and not name.startswith("_"):
                return name
    return ""
