"""What a timeline shows, in words: for those who do not see it, and to read its numbers off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.recording_views.spans import length, merged

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fakegpu_lab.recording_views.lanes import Lane
    from fakegpu_lab.recording_views.phases import Phase

_MOST = 12
"""The most phases that are listed."""


def timeline(
    title: str,
    rows: Sequence[Lane],
    curves: Mapping[int, Sequence[tuple[int, int]]],
    phases: Mapping[int, Sequence[Phase]],
    began_ns: int,
) -> str:
    """A sentence for each lane, for each device's memory, and for its phases."""
    return "\n".join([
        f"{title}.",
        *(_lane(lane) for lane in rows),
        *(_memory(device, curve, phases.get(device, ()), began_ns) for device, curve in curves.items()),
        *(_phases(device, found) for device, found in phases.items() if found),
    ])  # fmt: skip


_KINDS = {"host": ("call", "calls"), "modules": ("span", "spans"), "in": ("copy", "copies"), "out": ("copy", "copies")}
"""What the bars of a lane are, by a word of its label; else kernels."""


def _lane(lane: Lane) -> str:
    busy = length(merged((bar.start_ns, bar.end_ns) for bar in lane.bars))
    words = lane.label.split()
    kind = next((kind for word, kind in _KINDS.items() if word in words), ("kernel", "kernels"))
    count = len(lane.bars) if "modules" in words else sum(bar.count for bar in lane.bars)
    return f"{lane.label}: {several(count, *kind)}, {duration(busy)} in all."


def _memory(device: int, curve: Sequence[tuple[int, int]], phases: Sequence[Phase], began_ns: int) -> str:
    when, most = max(curve, key=lambda point: point[1])
    during = next((f", in {phase.name}" for phase in phases if phase.start_ns <= when < phase.end_ns), "")
    return (
        f"Memory of cuda:{device}: tensors held {size(curve[0][1])} at first, at most {size(most)} "
        f"(after {duration(when - began_ns)}{during}), and {size(curve[-1][1])} at the end."
    )


def _phases(device: int, phases: Sequence[Phase]) -> str:
    listed = ", ".join(f"{phase.name} {duration(phase.end_ns - phase.start_ns)}" for phase in phases[:_MOST])
    more = f", and {len(phases) - _MOST} more" if len(phases) > _MOST else ""
    return f"Phases of cuda:{device}: {listed}{more}."
