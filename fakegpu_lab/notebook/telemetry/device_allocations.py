"""The allocations of a window as telemetry has them: what `Trace.memory_figure` draws, in bounded size."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fakegpu_lab.notebook.telemetry.messages import DeviceAllocations
from fakegpu_lab.recording_views import peak
from fakegpu_lab.recording_views.bands import bands, columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fakegpu_lab.notebook.telemetry.messages import Band as Row
    from fakegpu_lab.recording_views.allocations import Allocations, Frame
    from fakegpu_lab.recording_views.bands import Band
    from fakegpu_lab.trace import Trace

Steps: TypeAlias = "NDArray[np.int64]"

BANDS, COLUMNS = 160, 480
"""The most bands and columns of all devices together, but at least a sixth of them each."""

GROUPS, FRAMES = 12, 6
"""The most rows of what made the peak, and lines of a stack."""


def device_allocations(trace: Trace, title: str) -> tuple[DeviceAllocations, ...]:
    """The allocations of every device that tensors were on."""
    found = [(device.slot, trace.memory(device.index)) for device in trace.machine.devices]
    used = [(slot, memory) for slot, memory in found if memory.tensors]
    part = min(6, max(1, len(used)))
    return tuple(
        _of_device(slot, memory, title, trace.began_ns, BANDS // part, COLUMNS // part) for slot, memory in used
    )


def _of_device(slot: int, found: Allocations, title: str, began_ns: int, most: int, wide: int) -> DeviceAllocations:
    drawn = np.array(columns(found, wide))
    lines: dict[str, int] = {}
    groups = peak.groups(found)
    shown, rest = groups[:GROUPS], groups[GROUPS:]
    if rest:
        nbytes, tensors = sum(group.nbytes for group in rest), sum(group.tensors for group in rest)
        shown.append(peak.Group(nbytes, tensors, "", "", "", ""))
    return DeviceAllocations(
        slot=slot,
        title=title,
        said=peak.sentence(found, began_ns),
        peak=found.peak,
        peak_step=found.peak_step,
        steps=found.steps,
        columns=tuple(drawn.tolist()),
        bands=tuple(row for band in bands(found, most) if (row := _row(band, drawn, lines))[-1]),
        lines=tuple(lines),
        phases=tuple((region.name, region.first, region.last) for region in found.phases),
        modules=tuple((region.name, region.first, region.last) for region in found.modules),
        groups=tuple(shown),
    )


def _row(band: Band, drawn: Steps, lines: dict[str, int]) -> Row:
    largest = max(band.tensors, key=lambda tensor: tensor.nbytes)
    changes = _changes(band, drawn)
    if not band.own:
        return band.category, len(band.tensors), largest.nbytes, "", "", "", "", -1, (), changes
    stack = tuple(lines.setdefault(_text(frame), len(lines)) for frame in largest.stack[:FRAMES])
    held = largest.end_ns - largest.start_ns if largest.freed else -1
    shape = peak.shape_of(largest)
    return band.category, 1, largest.nbytes, shape, largest.op, largest.module, largest.phase, held, stack, changes


def _text(frame: Frame) -> str:
    return f"{frame.line}  {frame.text}".strip()


def _changes(band: Band, drawn: Steps) -> tuple[tuple[int, int], ...]:
    """The band's changes from one drawn column to the next."""
    found = band.changes
    places = np.searchsorted(drawn, [step for step, _ in found]).tolist()
    sums: dict[int, int] = {}
    for place, (_, nbytes) in zip(places, found, strict=True):
        if place < len(drawn):
            sums[place] = sums.get(place, 0) + nbytes
    return tuple((place, nbytes) for place, nbytes in sorted(sums.items()) if nbytes)
