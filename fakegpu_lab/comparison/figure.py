"""Both timelines in one figure, one above the other: both begin at 0, and have one scale."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import duration
from fakegpu_lab.recording_views.figures import timeline, words
from fakegpu_lab.recording_views.figures.axis import Axis, unit_of
from fakegpu_lab.recording_views.figures.plotly_needed import need_plotly
from fakegpu_lab.recording_views.figures.theme import BARS as BAR_COLOURS
from fakegpu_lab.recording_views.figures.theme import plain, theme
from fakegpu_lab.recording_views.kernel_classes import CLASSES
from fakegpu_lab.recording_views.lanes import Lane, lanes, thinned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.comparison.sides import Side

LANES = 24
"""The most lanes of all devices; with more, the figure shows the first device of each recording."""

_WIDTH = 84
"""Characters in a line of the title."""


def figure(before: Side, after: Side, theme_name: str | None) -> Any:
    """Draw two recordings: see `Comparison.figure`."""
    need_plotly()
    from fakegpu_lab.recording_views.figures import shown

    used = theme(theme_name)
    longest = max(before.elapsed_ns, after.elapsed_ns, 1)
    axis = Axis(0, 0, longest, *unit_of(longest))
    groups = [(side, _from_zero(side, None)) for side in (before, after)]
    several = max(len(side.devices) for side in (before, after)) > 1
    fewer = several and sum(len(rows) for _, rows in groups) > LANES
    if fewer:
        groups = [(side, _from_zero(side, side.devices[0])) for side in (before, after)]
    merged = thinned([lane for _, rows in groups for lane in rows], timeline.BARS)
    notes = ["Both begin at 0, and have one scale."]
    if fewer:
        notes.append("The first GPU of each is shown.")
    if merged:
        notes.append(f"{merged:,} of the bars are too many to draw one by one: short neighbors are drawn together.")
    lines = [line for note in notes for line in textwrap.wrap(note, _WIDTH)]
    rows = _rows(groups)
    present = {bar.kind for lane in rows for bar in lane.bars}
    kinds = [kind for kind in (*timeline.NEUTRAL, *CLASSES) if kind in present]
    drawn = shown.Figure(
        words="\n".join(words.timeline(f"{side.label}, {duration(side.elapsed_ns)}", lanes_, {}, {}, 0)
                        for side, lanes_ in groups),
        title=" ".join(lines),
        key={timeline.LEGEND.get(kind, kind): BAR_COLOURS[kind] for kind in kinds},
        height=len(rows) * timeline.LANE_PX + timeline.AXIS_PX,
        follows=theme_name is None,
        solid=True,
    )  # fmt: skip
    for kind in kinds:
        bars = [(len(rows) - place, bar) for place, lane in enumerate(rows) for bar in lane.bars if bar.kind == kind]
        drawn.add_bar(**timeline.bars_of_kind(kind, bars, axis))
    _mark(drawn, groups, len(rows), axis)
    times = timeline.time_axis((0, axis.at(longest)), f"{axis.unit} since each recording began", used)
    drawn.update_layout(**timeline.lanes_layout(lines, rows, len(rows) * timeline.LANE_PX, times, used))
    return drawn


def _from_zero(side: Side, device: int | None) -> list[Lane]:
    """The lanes of a recording, from its start on."""
    recorded = side.recorded
    found = lanes(recorded, device, recorded.began_ns, recorded.ended_ns)
    for lane in found:
        for bar in lane.bars:
            bar.start_ns -= recorded.began_ns
            bar.end_ns -= recorded.began_ns
    return found


def _rows(groups: Sequence[tuple[Side, list[Lane]]]) -> list[Lane]:
    """All lanes from above, with an empty one above each recording for its name."""
    return [row for _, rows in groups for row in (Lane(""), *rows)]


def _mark(drawn: Any, groups: Sequence[tuple[Side, list[Lane]]], rows: int, axis: Axis) -> None:
    """Write each recording's name above its lanes, and draw a line where it ends."""
    place = rows
    for side, its in groups:
        drawn.add_annotation(
            text=f"<b>{plain(side.label)}</b> {duration(side.elapsed_ns)}", x=0, xref="paper", xanchor="left",
            y=place - 0.1, yanchor="middle", showarrow=False,
        )  # fmt: skip
        at = axis.at(side.elapsed_ns)
        drawn.add_shape(type="line", x0=at, x1=at, y0=place - len(its) - 0.45, y1=place + 0.3,
                        line={"width": 1.5, "dash": "dot", "color": "#8A8A8A"})  # fmt: skip
        place -= len(its) + 1
