"""What each host thread was in the middle of: the ops, annotations and Python functions around a call, by their times.

A profiler's file has intervals; what is around what follows from them. `around` goes through each thread once.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.formatting.printable import printable

if TYPE_CHECKING:
    from fakegpu_lab.opened.trace_file import Op, Thread, TraceFile

BACKWARD = re.compile(r"^autograd::engine::evaluate_function|^torch::autograd::|^\w+Backward\d*$")
"""Nodes of autograd's engine; profilers before 2022 have the nodes alone."""
OPTIMIZER = "Optimizer.step#"
LOADER = "enumerate(DataLoader)#"
_AROUND_OTHERS = ("Torch-Compiled Region", "## Call ", "[")
"""Events of the category of ops that are around a whole program of them."""
LONG_US = 100.0
"""A call or an op without a launch that takes longer, µs, is shown as work of the host: it is no dispatch."""
_MODULE = "nn.Module: "
_PYTHON = re.compile(r"^(.+)\((\d+)\): (.+)$")
_LIBRARIES = frozenset({"torch", "torchvision", "torchaudio", "triton", "numpy", "runpy.py"})
_INSTALLED = ("site-packages", "dist-packages", "<frozen", "<string>", "<built-in", "lib/python")
_SHOWN_PARTS = 2
"""Folders and file of a path that are shown."""


class Situation(NamedTuple):
    """Where a thread was.

    Attributes
    ----------
    op
        The innermost op; empty outside ops.
    op_us
        When the outermost op began, µs; -1 outside ops.
    module, line, phase
        As in `Record`.
    shapes
        The innermost op's, as the file has them.
    comms
        The event about a collective around it, if there is one.
    stack
        The user's frames, innermost first: (line, function).
    """

    op: str = ""
    op_us: float = -1.0
    module: str = ""
    line: str = ""
    phase: str = ""
    shapes: Any = None
    comms: Op | None = None
    stack: tuple[tuple[str, str], ...] = ()


NOWHERE = Situation()


class HostOp(NamedTuple):
    """An outermost op or the loading of a batch, and whether a launch or a long call was in it; times in µs."""

    thread: Thread
    ts: float
    end: float
    name: str
    line: str
    launched: bool


@dataclass
class Around:
    """What is around a file's calls and memory events, in their order.

    Attributes
    ----------
    with_python
        The threads whose Python functions were recorded.
    backward
        The threads in which autograd ran, and the ends of what it did there, µs.
    """

    calls: list[Situation]
    memories: list[Situation]
    host_ops: list[HostOp] = field(default_factory=list)
    with_python: set[Thread] = field(default_factory=set)
    backward: dict[Thread, list[float]] = field(default_factory=dict)


def around(file: TraceFile) -> Around:
    """Find out what each thread was in the middle of, at its calls and when memory changed."""
    found = Around([NOWHERE] * len(file.calls), [NOWHERE] * len(file.memories))
    threads: dict[Thread, list[tuple[float, float, int, Any]]] = defaultdict(list)
    for op in file.ops:
        if op.python:
            found.with_python.add(op.thread)
            if op.name.startswith("<built-in"):
                continue  # inside of it nothing is different
        elif BACKWARD.match(op.name):
            found.backward.setdefault(op.thread, []).append(op.ts + op.dur)
        threads[op.thread].append((op.ts, -op.dur, -1, op))
    for place, call in enumerate(file.calls):
        threads[call.thread].append((call.ts, 0.0, 2 * place, None))
    for place, memory in enumerate(file.memories):
        threads[memory.thread].append((memory.ts, 0.0, 2 * place + 1, None))
    for ends in found.backward.values():
        ends.sort()
    modules: dict[int, str] = {}
    launching = [starts_work(call.name) or call.dur >= LONG_US for call in file.calls]
    for thread in sorted(threads, key=lambda one: (one in found.backward, one)):  # forward passes first
        events = threads[thread]
        events.sort(key=lambda event: event[:3])
        _go_through(events, found, modules, launching)
    return found


def starts_work(name: str) -> bool:
    """Whether a call of CUDA starts work on a device: a kernel, a copy, a memset."""
    return "Launch" in name or "emcpy" in name or "emset" in name


class _Open:
    """An interval that is open: its end, the situation in it, and the outermost op that it belongs to."""

    __slots__ = ("end", "host_op", "launched", "situation")

    def __init__(self, end: float, situation: Situation, host_op: Op | None) -> None:
        self.end, self.situation, self.host_op = end, situation, host_op
        self.launched = False


def _go_through(
    events: list[tuple[float, float, int, Any]], found: Around, modules: dict[int, str],
    launching: list[bool],
) -> None:  # fmt: skip
    stack: list[_Open] = []
    outermost: _Open | None = None
    for ts, minus_dur, place, op in events:
        while stack and stack[-1].end <= ts and not (op is None and stack[-1].end == ts):
            closed = stack.pop()
            if closed is outermost:
                _finish(closed, found)
                outermost = None
        situation = stack[-1].situation if stack else NOWHERE
        if op is None:
            if place % 2:
                found.memories[place // 2] = situation
            else:
                found.calls[place // 2] = situation
                if outermost is not None and launching[place // 2]:
                    outermost.launched = True
            continue
        inner = _python(op, situation) if op.python else _op(op, situation, modules)
        if inner is situation and op.python:
            continue
        opened = _Open(ts - minus_dur, inner, op)
        stack.append(opened)
        if outermost is None and not op.python and _is_work(op):
            outermost = opened
    for left in stack:
        if left is outermost:
            _finish(left, found)


def _is_work(op: Op) -> bool:
    """Whether it is an op, or the loading of a batch, and no annotation around others."""
    return op.name.startswith(LOADER) or not (op.annotation or op.name.startswith(_AROUND_OTHERS))


def _finish(closed: _Open, found: Around) -> None:
    op = closed.host_op
    assert op is not None
    found.host_ops.append(
        HostOp(op.thread, op.ts, op.ts + op.dur, op.name, closed.situation.line, closed.launched)
    )  # fmt: skip


def _op(op: Op, outer: Situation, modules: dict[int, str]) -> Situation:
    """The situation within an op or an annotation."""
    name = op.name
    if name.startswith(OPTIMIZER):
        return outer._replace(phase="optimizer")
    if name.startswith("nccl:") or op.comms is not None:
        known = outer.comms is not None and outer.comms.comms is not None  # the event with more details
        return outer._replace(comms=outer.comms if known else op)
    line, stack = _of_stack(op.stack) if op.stack else ("", ())
    if not _is_work(op):
        return outer._replace(line=line or outer.line, stack=stack or outer.stack)
    start = outer.op_us if outer.op_us >= 0 else op.ts
    module, phase = outer.module, outer.phase
    if BACKWARD.match(name):
        phase = phase or "backward"
        module = modules.get(op.sequence, "") if op.sequence >= 0 else module
    elif op.sequence >= 0 and phase != "backward" and module:
        modules[op.sequence] = module
    return Situation(
        name, start, module, line or outer.line, phase, op.shapes, outer.comms, stack or outer.stack
    )  # fmt: skip


def _python(op: Op, outer: Situation) -> Situation:
    """The situation within a Python function."""
    name = op.name
    if name.startswith(_MODULE):
        own = printable(name.removeprefix(_MODULE)).replace(".", "_")
        return outer._replace(module=f"{outer.module}.{own}" if outer.module else own)
    line, function = users_line(name)
    if not line:
        return outer
    return outer._replace(line=line, stack=((line, function), *outer.stack[:15]))


@lru_cache(maxsize=65_536)
def users_line(name: str) -> tuple[str, str]:
    """The line and the function of a Python frame of the user's program; empty for libraries.

    The line of a function is its first one, as the profiler records it.

    >>> users_line("train.py(12): step")
    ('train.py, step (line 12)', 'step')
    >>> users_line("torch/nn/modules/module.py(1532): _wrapped_call_impl")
    ('', '')
    """
    found = _PYTHON.match(name)
    if found is None:
        return "", ""
    path, number, function = found.groups()
    path = path.replace("\\", "/")
    first = path.partition("/")[0]
    if any(part in path for part in _INSTALLED) or first in _LIBRARIES:
        return "", ""
    if first.removesuffix(".py") in sys.stdlib_module_names and not path.startswith("/"):
        return "", ""
    shown = printable("/".join(path.split("/")[-_SHOWN_PARTS:]))
    return f"{shown}, {printable(function)} (line {number})", printable(function)


@lru_cache(maxsize=65_536)
def _of_stack(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The user's line in a call stack of older profilers, which is written innermost first, and all of the user's."""
    frames = []
    for part in text.split(";", 200)[:200]:
        line, function = users_line(part.strip())
        if line:
            frames.append((line, function))
    return (frames[0][0], tuple(frames[:16])) if frames else ("", ())
