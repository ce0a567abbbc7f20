"""A recording's allocations as plain records, for whatever draws or tabulates them: `allocations`.

Everything that shows the allocations reads this one model: `Trace.memory_figure`, the table of the peak, and the views
in JupyterLab, which get it as JSON (``allocations(trace, 0).model_dump_json()``; ``Allocations.model_json_schema()`` is
its schema). A *step* is one allocation or one free: the sequence of steps is the x axis that PyTorch's memory
visualizer has, and every tensor is there from `Tensor.first` until `Tensor.last`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.hardware import memory_categories as categories
from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.recording_views.memory import changes, held_at_first
from fakegpu_lab.recording_views.phases import FORWARD, OPTIMIZER, phases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Allocation
    from fakegpu_lab.recording_views.memory import Change
    from fakegpu_lab.recording_views.phases import Phase
    from fakegpu_lab.recording_views.recorded import Recorded

REGIONS = 40
"""Regions of modules; if there are more, the modules' paths are shortened."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Frame(_Model):
    """A line of the user's program."""

    line: str = Field(description="such as 'In[3], line 5' or 'train.py:12'")
    text: str = Field(description="the source; empty if the file cannot be read")
    function: str = Field(default="", description="the function that it is in; '<module>' outside functions")


class Tensor(_Model):
    """A block of device memory with the tensor that it was allocated for."""

    first: int = Field(description="the step at which it is allocated; 0: it was there before the recording")
    last: int = Field(description="the step at which it is freed; `Allocations.steps` if it is not")
    start_ns: int = Field(description="when its stream begins to use it, ns since the recording began")
    end_ns: int = Field(description="when its stream has done with it")
    nbytes: int = Field(description="the block's bytes: what counts in memory_allocated")
    requested: int = Field(description="the bytes requested; the block's are these, rounded")
    shape: tuple[int, ...] | None = Field(description="None: not the result of an op, such as a workspace")
    dtype: str = Field(description="such as 'float32'; empty without a shape")
    category: str = Field(description="one of hardware.memory_categories.NAMES")
    phase: str = Field(description="'forward', 'backward', 'optimizer' or empty")
    module: str = Field(description="the module's path; empty outside modules")
    op: str = Field(description="what allocated it: an op such as 'aten::linear', or 'copy from the host'")
    stack: tuple[Frame, ...] = Field(description="the user's line first, then what called it")
    freed: bool = Field(description="False: it is still held when the recording ends")
    at_peak: bool = Field(description="whether it is held at the peak")


class Region(_Model):
    """Neighboring steps of one phase or one module."""

    name: str
    first: int
    last: int = Field(description="the step after its last one")


class Allocations(_Model):
    """The allocations of one device during a recording."""

    device: int
    name: str = Field(description="the card's name")
    steps: int = Field(description="allocations and frees together")
    held_at_first: int = Field(description="bytes that tensors held when the recording began")
    heights: tuple[int, ...] = Field(description="the bytes held before step 1 and after each step")
    times_ns: tuple[int, ...] = Field(description="when the stream comes to each step, ns since the recording began")
    peak: int = Field(description="the most bytes: torch.cuda.max_memory_allocated")
    peak_step: int = Field(description="after which step")
    tensors: tuple[Tensor, ...] = Field(description="in the order in which they were allocated")
    phases: tuple[Region, ...]
    modules: tuple[Region, ...]
    note: str = Field(description="a sentence about allocations that were not kept; empty if all were")


def allocations(recorded: Recorded, device: int = 0) -> Allocations:
    """The allocations of a device, as its program made them.

    Simplified: what a tensor is for is known if a model or an optimizer holds it when the recording ends; otherwise it
    is inferred from where the tensor was made. A gradient on its way through backward counts as a gradient, as in
    the live panel.
    """
    found = changes(recorded, device)
    times = phases(recorded.kernels, device)
    ends: dict[int, tuple[int, int]] = {}
    for step, change in enumerate(found, 1):
        if change.nbytes < 0:
            ends[id(change.block)] = step, change.ns
    heights = [held_at_first(recorded, device)]
    for change in found:
        heights.append(heights[-1] + change.nbytes)
    peak_step = heights.index(max(heights))
    frames = _Frames()
    began, ended = recorded.began_ns, recorded.ended_ns
    sent = {record.line for record in recorded.transfers if record.kind == "h2d"}

    def tensor(block: Allocation, first: int, start: int) -> Tensor:
        last, end = ends.get(id(block), (len(found) + 1, ended))
        phase = "" if not block.number else _phase_at(times, start) or (FORWARD if block.module else "")
        return Tensor(
            first=first,
            last=min(last, len(found)) if block.freed else len(found),
            start_ns=start - began,
            end_ns=max(start, end) - began,
            nbytes=block.block_bytes,
            requested=block.nbytes,
            shape=block.shape,
            dtype=block.dtype,
            category=_category(block, phase, times, start, end, sent),
            phase=phase,
            module=block.module,
            op="copy from the host" if block.name == "allocation" and block.line in sent else block.name,
            stack=frames.of(block),
            freed=block.freed,
            at_peak=first <= peak_step < last,
        )

    tensors = [tensor(block, 0, began) for block in recorded.held_before if block.device == device]
    tensors += [tensor(change.block, step, change.ns) for step, change in enumerate(found, 1) if change.nbytes >= 0]
    dropped = recorded.dropped.get("allocations", 0)
    return Allocations(
        device=device,
        name=recorded.cards[device],
        steps=len(found),
        held_at_first=heights[0],
        heights=tuple(heights),
        times_ns=tuple(change.ns - began for change in found),
        peak=heights[peak_step],
        peak_step=peak_step,
        tensors=tuple(tensors),
        phases=_regions(found, lambda change: _phase_at(times, change.ns)),
        modules=_modules(found),
        note=f"The recording was full: {dropped:,} allocations are missing." if dropped else "",
    )


def _phase_at(times: Sequence[Phase], ns: int) -> str:
    return next((phase.name for phase in times if phase.start_ns <= ns < phase.end_ns), "")


def _category(block: Allocation, phase: str, times: Sequence[Phase], start: int, end: int, sent: set[str]) -> str:
    """What a block is for: known from its model or optimizer, or from where it was made."""
    if block.category or not block.number:
        return block.category or categories.OTHER
    at_once = block.freed and block.freed_after == block.number and block.end_ns == block.start_ns
    if at_once:  # an op's own, freed before anything else was allocated
        return categories.WORKSPACE
    if block.phase == "move":
        return categories.PARAMETERS
    if block.phase == "optimizer":
        within = any(each.name == OPTIMIZER and each.start_ns <= start and end <= each.end_ns for each in times)
        return categories.OTHER if block.freed and within else categories.OPTIMIZER_STATE
    if block.phase == "backward":
        return categories.GRADIENTS
    if block.phase == "recompute" or phase == FORWARD:
        return categories.ACTIVATIONS
    return categories.INPUTS if block.line in sent else categories.OTHER


class _Frames:
    """The frames of stacks; each line is looked up once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Frame] = {}

    def of(self, block: Allocation) -> tuple[Frame, ...]:
        return tuple(self._frame(*entry) for entry in block.stack)

    def _frame(self, line: str, function: str) -> Frame:
        known = self._known.get((line, function))
        if known is None:
            found = place(line)
            known = self._known[line, function] = Frame(line=found.label, text=found.text, function=function)
        return known


def _regions(found: Iterable[Change], name_of: Callable[[Change], str]) -> tuple[Region, ...]:
    regions: list[Region] = []
    for name, group in groupby(enumerate(found, 1), key=lambda entry: name_of(entry[1])):
        steps = [step for step, _ in group]
        if name:
            regions.append(Region(name=name, first=steps[0], last=steps[-1] + 1))
    return tuple(regions)


def _modules(found: Sequence[Change]) -> tuple[Region, ...]:
    """Where each module allocates: frees belong to what was allocated before them."""
    paths: list[str] = []
    for change in found:
        paths.append(change.block.module if change.nbytes >= 0 else paths[-1] if paths else "")
    for depth in (4, 3, 2, 1):
        short = iter([".".join(path.split(".")[:depth]) for path in paths])
        regions = _regions(found, lambda change, short=short: next(short))  # type: ignore[misc]
        if len(regions) <= REGIONS:
            break
    return regions
