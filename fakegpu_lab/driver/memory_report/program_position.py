"""Finds where a program is, from its stack: its line, its op, its phase, and the place in its model."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.user_code.frames import SHOWN, kind, line_of

if TYPE_CHECKING:
    from types import FrameType

    from fakegpu_lab.driver.memory_report.facts import Facts

    Forward = tuple[torch.nn.Module, FrameType]

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
