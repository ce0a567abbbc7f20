"""`MemorySnapshot`: a memory snapshot of PyTorch (``torch.cuda.memory._dump_snapshot``), with the views of memory.

The file has the allocator's segments and blocks at its end, and, if ``torch.cuda.memory._record_memory_history`` was
on, the allocations and frees before that with their stacks. Memory that is held at the end and was not allocated in the
history was there before it, as PyTorch's viewer has it (torch/utils/viz/MemoryViz.js).
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fakegpu_lab.formatting.printable import encodable, printable
from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import percent, several, size
from fakegpu_lab.hardware import memory_categories as categories
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.content import broken, refusal
from fakegpu_lab.opened.plain_pickle import PlainPickleError, loads
from fakegpu_lab.opened.threads import users_line
from fakegpu_lab.recording import MemoryViews
from fakegpu_lab.recording_views.allocations import Allocations, Frame, Tensor

if TYPE_CHECKING:
    from pathlib import Path

_BLOCK = 512
"""The allocator rounds sizes up to multiples of this (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""
_FRAMES = 12
_OP = re.compile(r"at::_ops::(\w+?)(?:_[A-Z]\w*)?::(?:call|redispatch)")
_ALLOCATES = ("aten::empty", "aten::resize_", "aten::new_empty")
"""Ops that only allocate: the op that called one says more."""


class DeviceSummary(NamedTuple):
    """The memory of a device when the snapshot was made, in bytes.

    Attributes
    ----------
    reserved, allocated, active
        What the allocator had taken from CUDA; what tensors held; the same with blocks that other streams still used.
    unused, free_blocks, largest_free
        What was reserved and not active, in how many blocks, and the largest of them.
    """

    segments: int
    reserved: int
    allocated: int
    active: int
    requested: int
    unused: int
    free_blocks: int
    largest_free: int


class MemorySnapshot(MemoryViews):
    """A memory snapshot: what was allocated, by which line, and how much of the reserved memory was unused.

    Attributes
    ----------
    origin
        The file's name.
    devices
        The memory of each device, by its ordinal.
    """

    called = "this snapshot"

    def __init__(self, origin: str, devices: dict[int, DeviceSummary], allocations: dict[int, Allocations]) -> None:
        self.origin, self.devices, self._allocations = origin, devices, allocations

    def memory(self, device: int = 0) -> Allocations:
        """The allocations of a device as plain records, for pictures and tables of your own.

        Raises
        ------
        FakeGpuError
            The snapshot has no such device.
        """
        found = self._allocations.get(device)
        if found is None:
            listed = ", ".join(map(str, sorted(self.devices)))
            raise FakeGpuError(f"There is no device {device} in {self.origin}, which has {listed}.")
        return found

    def peak_memory(self, device: int = 0) -> int:
        """The most bytes that tensors held, as far as the history goes back."""
        return self.memory(device).peak

    def by_line(self, device: int = 0, top: int | None = 20) -> Table:
        """The source lines whose tensors are in memory at the end, the most bytes first."""
        sums: dict[str, list[int]] = {}
        for tensor in self.memory(device).tensors:
            if not tensor.freed:
                line = tensor.stack[0].line if tensor.stack else "(no line known)"
                entry = sums.setdefault(line, [0, 0])
                entry[0] += tensor.nbytes
                entry[1] += 1
        ordered = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
        whole = sum(nbytes for _, (nbytes, _) in ordered)
        rows = [[line, size(nbytes), percent(nbytes, whole), f"{count:,}"] for line, (nbytes, count) in ordered[:top]]
        title = f"Memory of cuda:{device} at the end, by source line"
        return Table(["line", "memory", "share", "blocks"], rows, title, frozenset({1, 2, 3}))

    def summary(self) -> Table:
        """What each device had reserved and allocated, and how much of it was unused."""
        headers = ["device", "reserved", "allocated", "unused", "unused blocks", "largest unused", "segments"]
        rows = [
            [f"cuda:{device}", size(one.reserved), size(one.allocated),
             f"{size(one.unused)} ({percent(one.unused, one.reserved) or '0%'})", f"{one.free_blocks:,}",
             size(one.largest_free), f"{one.segments:,}"]
            for device, one in sorted(self.devices.items())
        ]  # fmt: skip
        return Table(headers, rows, self.described(), frozenset(range(1, len(headers))))

    def described(self) -> str:
        """One line for each device: what was reserved, what was allocated, and how the rest is divided."""
        parts = []
        for device, one in sorted(self.devices.items()):
            peak = self._allocations[device].peak
            text = f"cuda:{device} had reserved {size(one.reserved)}, of which tensors held {size(one.allocated)}"
            if peak > one.allocated:
                text += f" ({size(peak)} at the peak)"
            if one.unused:
                text += (
                    f"; {size(one.unused)} ({percent(one.unused, one.reserved)}) was unused, in "
                    f"{several(one.free_blocks, 'block')}, the largest of {size(one.largest_free)}"
                )
            parts.append(text)
        return "; ".join(parts) or "No device had reserved memory"

    def __repr__(self) -> str:
        return f"<MemorySnapshot of {self.origin}: {self.described()}>"

    def _repr_html_(self) -> str:
        hint = "<code>.memory_figure()</code> draws it; <code>.at_peak()</code>, <code>.by_line()</code> name tensors"
        return f"{html.escape(repr(self)[1:-1])}<br><small>{hint}</small>"


class _BrokenSnapshotError(Exception):
    """A snapshot that cannot be; the message continues a sentence."""


def read_snapshot(path: Path, data: bytes) -> MemorySnapshot:
    """Read a snapshot.

    Raises
    ------
    FakeGpuError
        It is damaged, is more than plain data, or is no snapshot.
    """
    try:
        found = loads(data)
    except PlainPickleError as error:
        raise refusal(path, f"a pickle that cannot be opened, because {error}") from None
    if not (isinstance(found, dict) and isinstance(found.get("segments"), list)):
        raise refusal(path, "a pickle, but no memory snapshot: it has no segments")
    try:
        return _snapshot(printable(path.name), found)
    except _BrokenSnapshotError as error:
        raise broken(path, str(error)) from None


def _number(thing: Any, key: str, what: str) -> int:
    value = thing.get(key) if isinstance(thing, dict) else None
    if type(value) is not int or not 0 <= value < 2**63:
        raise _BrokenSnapshotError(f"{what} has no {key} that is a number")
    return value


def _snapshot(name: str, data: dict[str, Any]) -> MemorySnapshot:
    segments: dict[int, list[dict[str, Any]]] = {}
    for number, segment in enumerate(data["segments"]):
        segments.setdefault(_number(segment, "device", f"segment {number}"), []).append(segment)
    traces = data.get("device_traces")
    if traces is not None and not isinstance(traces, list):
        raise _BrokenSnapshotError("its device_traces are not a list")
    histories = {}
    for device, events in enumerate(traces or []):
        if not isinstance(events, list):
            raise _BrokenSnapshotError("its device_traces are not lists of events")
        if events:
            histories[device] = events
    devices, allocations = {}, {}
    for device in sorted({*segments, *histories}):
        devices[device] = _summary(segments.get(device, []))
        allocations[device] = _Device(device, segments.get(device, []), histories.get(device, [])).allocations()
    return MemorySnapshot(name, devices, allocations)


def _blocks(segment: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = segment.get("blocks")
    if not (isinstance(blocks, list) and all(isinstance(block, dict) for block in blocks)):
        raise _BrokenSnapshotError("a segment has no list of blocks")
    return blocks


def _summary(segments: list[dict[str, Any]]) -> DeviceSummary:
    reserved = sum(_number(segment, "total_size", "a segment") for segment in segments)
    allocated = sum(_number(segment, "allocated_size", "a segment") for segment in segments)
    active = sum(_number(segment, "active_size", "a segment") for segment in segments)
    blocks = [block for segment in segments for block in _blocks(segment)]
    free = [_number(block, "size", "a block") for block in blocks if block.get("state") == "inactive"]
    requested = sum(
        block.get("requested_size", 0) for block in blocks
        if block.get("state") == "active_allocated" and type(block.get("requested_size", 0)) is int
    )  # fmt: skip
    return DeviceSummary(
        len(segments), reserved, allocated, active, requested, sum(free), len(free), max(free, default=0)
    )  # fmt: skip


class _Block:
    """A block from its allocation until it is freed."""

    __slots__ = ("first", "frames", "freed", "last", "nbytes", "requested", "start_us", "stop_us")

    def __init__(self, nbytes: int, requested: int, frames: Any, first: int, start_us: int) -> None:
        self.nbytes, self.requested, self.frames = nbytes, requested, frames
        self.first, self.last, self.freed = first, -1, False
        self.start_us, self.stop_us = start_us, start_us


class _Device:
    """Follows the memory of one device through the history."""

    def __init__(self, device: int, segments: list[dict[str, Any]], history: list[Any]) -> None:
        self.device, self.history = device, history
        self.live: dict[int, dict[str, Any]] = {}
        for segment in segments:
            at = segment.get("address", 0)
            for block in _blocks(segment):
                nbytes = _number(block, "size", "a block")
                at = block.get("address", at)  # older snapshots have no addresses of blocks: they follow each other
                if type(at) is not int:
                    raise _BrokenSnapshotError("a block has no address that is a number")
                if block.get("state") == "active_allocated":
                    self.live[at] = block
                at += nbytes

    def allocations(self) -> Allocations:
        """The device's allocations, in the model that all views of memory read."""
        changes, before = self._followed()
        steps = len(changes)
        held_at_first = sum(block.nbytes for block in before)
        heights = [held_at_first]
        for _, delta, _ in changes:
            heights.append(heights[-1] + delta)
        peak_step = heights.index(max(heights))
        began = changes[0][2] if changes else 0
        times = [max(us - began, 0) * 1000 for _, _, us in changes]
        ended = times[-1] if times else 0
        blocks = [*before, *(block for block, delta, _ in changes if delta > 0)]
        tensors = tuple(self._tensor(block, steps, peak_step, began, ended) for block in blocks)
        return Allocations(
            device=self.device, name="", steps=steps, held_at_first=held_at_first, heights=tuple(heights),
            times_ns=tuple(times), peak=heights[peak_step], peak_step=peak_step, tensors=tensors, phases=(), modules=(),
            note="" if changes else "The snapshot has no history: torch.cuda.memory._record_memory_history() was off.",
        )  # fmt: skip

    def _followed(self) -> tuple[list[tuple[_Block, int, int]], list[_Block]]:
        """The changes, as (block, bytes more, time in µs), and what was held before them."""
        alive: dict[int, _Block] = {}
        before: list[_Block] = []
        changes: list[tuple[_Block, int, int]] = []
        for number, event in enumerate(self.history):
            action = event.get("action") if isinstance(event, dict) else None
            if action not in ("alloc", "free_requested"):
                continue
            what = f"event {number:,} of cuda:{self.device}"
            address, nbytes = _number(event, "addr", what), _number(event, "size", what)
            us = event.get("time_us", number)
            us = us if type(us) is int and 0 <= us < 2**62 else number
            if action == "alloc":
                known = alive.pop(address, None)
                if known is not None:  # its free was not recorded
                    self._free(known, changes, us)
                block = _Block(-(-nbytes // _BLOCK) * _BLOCK, nbytes, event.get("frames"), len(changes) + 1, us)
                alive[address] = block
                changes.append((block, block.nbytes, us))
            else:
                freed = alive.pop(address, None)
                if freed is None:
                    freed = _Block(-(-nbytes // _BLOCK) * _BLOCK, nbytes, event.get("frames"), 0, 0)
                    freed.frames = None  # those of the free, not of the allocation
                    before.append(freed)
                self._free(freed, changes, us)
        for address, block in list(alive.items()):
            now = self.live.get(address)
            if now is None:
                del alive[address]  # the history goes on where the segments end
            else:
                self._exact(block, now, changes)
        for address, now in self.live.items():
            if address not in alive:
                nbytes = _number(now, "size", "a block")
                requested = now.get("requested_size", nbytes)
                before.append(_Block(nbytes, requested if type(requested) is int else nbytes, now.get("frames"), 0, 0))
        return changes, before

    @staticmethod
    def _free(block: _Block, changes: list[tuple[_Block, int, int]], us: int) -> None:
        block.freed, block.last, block.stop_us = True, len(changes) + 1, us
        changes.append((block, -block.nbytes, us))

    @staticmethod
    def _exact(block: _Block, now: dict[str, Any], changes: list[tuple[_Block, int, int]]) -> None:
        """Give a block that is still there the size that it has, which is not always the rounded one."""
        block.nbytes = _number(now, "size", "a block")
        changes[block.first - 1] = (block, block.nbytes, changes[block.first - 1][2])

    def _tensor(self, block: _Block, steps: int, peak_step: int, began: int, ended: int) -> Tensor:
        frames = block.frames if isinstance(block.frames, list) else []
        last = block.last if block.freed else steps
        stack, op, category, phase = _made_by(frames)
        return Tensor(
            first=block.first, last=last,
            start_ns=max(block.start_us - began, 0) * 1000 if block.first else 0,
            end_ns=max(block.stop_us - began, 0) * 1000 if block.freed else ended,
            nbytes=block.nbytes, requested=block.requested, shape=None, dtype="", category=category, phase=phase,
            module="", op=op, stack=stack, freed=block.freed,
            at_peak=block.first <= peak_step < (last if block.freed else steps + 1),
        )  # fmt: skip


def _made_by(frames: list[Any]) -> tuple[tuple[Frame, ...], str, str, str]:
    """The user's frames, the op, the category and the phase, as far as a block's frames say.

    Simplified: memory that a backward pass allocates counts as gradients, that of a module's forward as activations.
    """
    stack: list[Frame] = []
    op, function, phase, category = "", "", "", ""
    for frame in frames[:512]:
        if not isinstance(frame, dict):
            continue
        file, name, line = (frame.get(key) for key in ("filename", "name", "line"))
        if not (isinstance(file, str) and isinstance(name, str) and type(line) is int):
            continue
        if (not op or op.startswith(_ALLOCATES)) and "at::_ops::" in name:
            found = _OP.search(name)
            op = f"aten::{found[1]}" if found else op
        if not category:
            category, phase = _category(file, name)
        if file.endswith(".py") or file.startswith("<ipython"):
            function = function or name
            if len(stack) < _FRAMES:
                place = _frame(file, name, line)
                if place is not None:
                    stack.append(place)
    return tuple(stack), printable(str(encodable(op or function))) or "allocation", category or categories.OTHER, phase


def _category(file: str, name: str) -> tuple[str, str]:
    file = file.replace("\\", "/")
    if "torch::autograd::Engine" in name or (file.endswith("torch/autograd/graph.py") and "backward" in name):
        return categories.GRADIENTS, "backward"
    if "torch/optim/" in file and ("step" in name or "init" in name or name in ("adam", "adamw", "sgd")):
        return categories.OPTIMIZER_STATE, "optimizer"
    if file.endswith("torch/nn/modules/module.py"):
        if name in ("_apply", "convert", "to", "cuda"):
            return categories.PARAMETERS, ""
        if "call_impl" in name:
            return categories.ACTIVATIONS, "forward"
    return "", ""


@lru_cache(maxsize=16_384)
def _frame(file: str, name: str, line: int) -> Frame | None:
    """A frame of the user's program; None for one of a library."""
    shown, function = users_line(f"{file}({line}): {name}")
    return Frame(line=f"{shown.partition(',')[0]}, line {line}", text="", function=function) if shown else None
