"""The figure of a recording: what worked when, what waited for what, and the memory below on the same axis."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import size
from fakegpu_lab.recording_views.figures import words
from fakegpu_lab.recording_views.figures.axis import axis_of, byte_ticks
from fakegpu_lab.recording_views.figures.plotly_needed import need_plotly
from fakegpu_lab.recording_views.figures.theme import BARS as BAR_COLOURS
from fakegpu_lab.recording_views.figures.theme import MEMORY, PHASES, faint, ink_on, layout, plain, theme
from fakegpu_lab.recording_views.kernel_classes import CLASSES
from fakegpu_lab.recording_views.lanes import bands, lanes, thinned
from fakegpu_lab.recording_views.memory import memory_curve
from fakegpu_lab.recording_views.phases import NAMES, phases
from fakegpu_lab.recording_views.recorded import note_of_dropped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from fakegpu_lab.recording_views.figures.axis import Axis
    from fakegpu_lab.recording_views.figures.theme import Theme
    from fakegpu_lab.recording_views.lanes import Bar, Lane
    from fakegpu_lab.recording_views.phases import Phase
    from fakegpu_lab.recording_views.recorded import Recorded

    Curve: TypeAlias = "list[tuple[int, int]]"

BARS = 5_000
"""Bars that a browser can draw, zoom and move without delay."""

POINTS = 3_000
"""Points of a memory curve."""

BANDS = 500
"""Collectives that are drawn across the ranks' lanes; if there are more, each would be too thin to see."""

NEUTRAL = ("python", "dispatch", "launch", "host waits", "host works", "forward", "backward", "waits for ranks")
LEGEND = {
    "python": "host: Python", "dispatch": "host: PyTorch's C++", "launch": "host launches",
    "forward": "module, forward", "backward": "module, backward",
    "waits for ranks": "collective waits for the slowest rank",
}  # fmt: skip
"""The kinds of bars that are no class of kernels, and what the legend calls them."""
HATCHED = ("host waits", "waits for ranks")
"""The kinds of bars in which something waits; in the panel, too, they are striped."""

_EDGED = 120
"""Bars wider than the figure's width divided by this have an edge, which separates neighbours."""
_PIXELS, _WIDENED = 1_000, 0.05
"""plotly draws a bar at least a pixel wide, of about 1,000 in a figure. Bars are crowded if that adds more than this
part of the figure's width: a lane of short kernels with gaps between them would look full."""
_BLENDED = 0.999
"""The opacity of crowded bars: plotly leaves the width of a bar that is not opaque as it is, and the browser blends it
with what is behind it."""

LANE_PX, LINE_PX, AXIS_PX, _GAP_PX = 34, 19, 54, 24
"""The heights of a lane, of a line of the title, of the axis of time, and between two curves."""
_MEMORY_PX, _SMALL_PX = 130, 72
"""The height of a memory curve: of one alone, of one among several."""

SHADED = 200
"""Phases that are shaded; if there are more, each would be too thin to see."""


def figure(
    recorded: Recorded, title: str, device: int | None, start: float | None, end: float | None, theme_name: str | None
) -> Any:
    """Draw a recording: see `Trace.figure`."""
    need_plotly()
    from fakegpu_lab.recording_views.figures import shown

    used = theme(theme_name)
    axis = axis_of(recorded, start, end)
    rows = lanes(recorded, device, axis.first_ns, axis.last_ns)
    merged = thinned(rows, BARS)
    curves = _memory_curves(recorded, device, axis)
    found = _phases(recorded, device, axis)
    strips = _Strips(rows, curves)
    present = {bar.kind for lane in rows for bar in lane.bars}
    kinds = [kind for kind in (*NEUTRAL, *CLASSES) if kind in present]
    lines = _title_lines(recorded, title, merged)
    drawn = shown.Figure(
        words=words.timeline(title, rows, curves, found, recorded.began_ns),
        title=" ".join(lines),
        key={LEGEND.get(kind, kind): _swatch(kind) for kind in kinds},
        height=strips.plot_px + AXIS_PX,
        follows=theme_name is None,
    )
    _shade(drawn, rows, strips, found, axis)
    across = bands(recorded, device, axis.first_ns, axis.last_ns)
    if across and len(across) <= BANDS:
        drawn.add_bar(**_across(across, len(rows), axis))
    for kind in kinds:
        bars = [(len(rows) - place, bar) for place, lane in enumerate(rows) for bar in lane.bars if bar.kind == kind]
        drawn.add_bar(**bars_of_kind(kind, bars, axis))
    for number, (index, curve) in enumerate(curves.items()):
        drawn.add_scatter(**_memory(index, curve, recorded.ended_ns, axis, _y(number)))
        drawn.add_scatter(**_peak(index, curve, axis, _y(number)))
    _lay_out(drawn, rows, lines, axis, strips, used)
    return drawn


def _swatch(kind: str) -> str:
    color = BAR_COLOURS[kind]
    return f"repeating-linear-gradient(135deg, #555555 0 1px, {color} 1px 4px)" if kind in HATCHED else color


class _Strips:
    """Where the memory curves are, below the lanes: a strip for each device, all to one scale."""

    def __init__(self, rows: Sequence[Lane], curves: Mapping[int, Curve]) -> None:
        self.devices = list(curves)
        self.most = max([nbytes for curve in curves.values() for _, nbytes in curve], default=1) or 1
        self.strip_px = _MEMORY_PX if len(curves) == 1 else _SMALL_PX
        self.lanes_px = max(len(rows), 1) * LANE_PX
        self.plot_px = self.lanes_px + len(curves) * (self.strip_px + _GAP_PX)

    @property
    def top(self) -> float:
        """The upper end of the strips' axes: room for the names of the phases and the peak."""
        return self.most * (1.45 if self.strip_px == _MEMORY_PX else 2.1)

    def domain(self, number: int) -> list[float]:
        """The part of the figure's height that a strip has."""
        bottom = (len(self.devices) - 1 - number) * (self.strip_px + _GAP_PX)
        return [bottom / self.plot_px, (bottom + self.strip_px) / self.plot_px]


def _y(strip: int) -> str:
    return f"y{strip + 2}"


def _memory_curves(recorded: Recorded, device: int | None, axis: Axis) -> dict[int, Curve]:
    """The memory curves of the devices that are shown; devices without allocations have none."""
    shown = list(recorded.cards) if device is None else [device]
    curves = {index: _thin(memory_curve(recorded, index), axis.width_ns) for index in shown}
    return {index: curve for index, curve in curves.items() if curve}


def _phases(recorded: Recorded, device: int | None, axis: Axis) -> dict[int, list[Phase]]:
    shown = list(recorded.cards) if device is None else [device]
    found = {index: phases(recorded.kernels, index) for index in shown}
    return {
        index: [phase for phase in all_ if phase.end_ns >= axis.first_ns and phase.start_ns <= axis.last_ns]
        for index, all_ in found.items()
    }


def _shade(drawn: Any, rows: Sequence[Lane], strips: _Strips, found: Mapping[int, Sequence[Phase]], axis: Axis) -> None:
    """Shade the phases behind a device's lanes and its memory, where they have their names."""
    for index, all_ in found.items():
        mine = [len(rows) - place for place, lane in enumerate(rows) if lane.label.startswith(f"cuda:{index} ")]
        for name in NAMES:
            few = [phase for phase in all_ if phase.name == name]
            if not few or len(all_) > SHADED:
                continue
            colour = faint(PHASES[name], 0.24)
            starts = [axis.at(phase.start_ns) for phase in few]
            lengths = [(phase.end_ns - phase.start_ns) / axis.unit_ns for phase in few]
            common = {"marker": {"color": colour, "line": {"width": 0}}, "hoverinfo": "skip", "showlegend": False}
            if mine:
                drawn.add_bar(orientation="h", y=[sum(mine) / len(mine)] * len(few), base=starts, x=lengths,
                              width=max(mine) - min(mine) + 1, **common)  # fmt: skip
            if index in strips.devices:
                drawn.add_bar(
                    x=[start + length / 2 for start, length in zip(starts, lengths, strict=True)], width=lengths,
                    y=[strips.top] * len(few), yaxis=_y(strips.devices.index(index)), text=[name] * len(few),
                    textposition="inside", insidetextanchor="end", textangle=0, constraintext="inside", **common,
                )  # fmt: skip


def _title_lines(recorded: Recorded, title: str, merged: int) -> list[str]:
    """The title and the notes below it, wrapped; a number stays with its unit."""
    notes = [title]
    if merged:
        notes.append(
            f"{merged:,} of its bars are too many to draw one by one: short neighbors are drawn together. "
            "figure(start=…, end=…) shows a part in full."
        )
    notes.append(note_of_dropped(recorded))
    return [line for note in notes for line in textwrap.wrap(re.sub(r"(\d) (\S)", "\\1\u00a0\\2", note), 84)]


def _across(across: Sequence[tuple[int, int]], rows: int, axis: Axis) -> dict[str, Any]:
    """Bands behind all lanes, while bytes move between the ranks."""
    return {
        "orientation": "h",
        "y": [(rows + 1) / 2] * len(across),
        "base": [axis.at(start) for start, _ in across],
        "x": [(end - start) / axis.unit_ns for start, end in across],
        "width": rows + 0.2,
        "marker": {"color": faint(BAR_COLOURS["collective"], 0.14), "line": {"width": 0}},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def bars_of_kind(kind: str, bars: Sequence[tuple[int, Bar]], axis: Axis) -> dict[str, Any]:
    """The bars of one kind, each with the number of its row."""
    colour, crowded, edged_ns = BAR_COLOURS[kind], _crowded(bars, axis), axis.width_ns / _EDGED
    marker: dict[str, Any] = {"color": colour, "line": {"color": "rgba(0, 0, 0, 0.4)"}}
    if crowded:
        marker["color"] = [faint(colour, _BLENDED) if row in crowded else colour for row, _ in bars]
    marker["line"]["width"] = [1 if bar.end_ns - bar.start_ns > edged_ns else 0 for _, bar in bars]
    if kind in HATCHED:
        marker["pattern"] = {"shape": "/", "size": 5, "solidity": 0.25, "fgcolor": "#555555"}
    return {
        "name": LEGEND.get(kind, kind),
        "orientation": "h",
        "y": [row for row, _ in bars],
        "base": [axis.at(bar.start_ns) for _, bar in bars],
        "x": [(bar.end_ns - bar.start_ns) / axis.unit_ns for _, bar in bars],
        "width": 0.74,
        "marker": marker,
        "text": [plain(bar.label) for _, bar in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": ink_on(colour)},
        "textangle": 0,
        "hovertext": [bar.hover for _, bar in bars],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }


def _crowded(bars: Sequence[tuple[int, Bar]], axis: Axis) -> set[int]:
    """The rows whose bars are too many and too short to be drawn a pixel wide each."""
    pixel_ns, added = axis.width_ns // _PIXELS, Counter[int]()
    for row, bar in bars:
        added[row] += max(pixel_ns - (bar.end_ns - bar.start_ns), 0)
    return {row for row, ns in added.items() if ns > _WIDENED * axis.width_ns}


def _thin(curve: list[tuple[int, int]], width: int) -> list[tuple[int, int]]:
    """A curve of at most `POINTS` points: the highest and the last of each short time."""
    if len(curve) <= POINTS:
        return curve
    step = max(width * 2 // POINTS, 1)
    bins: dict[int, list[tuple[int, int]]] = {}
    for point in curve:
        bins.setdefault(point[0] // step, []).append(point)
    kept: list[tuple[int, int]] = []
    for points in bins.values():
        highest = max(points, key=lambda point: point[1])
        kept += [highest, points[-1]] if highest is not points[-1] else [highest]
    return kept


def _memory(index: int, curve: Curve, ended_ns: int, axis: Axis, y: str) -> dict[str, Any]:
    points = [*curve, (ended_ns, curve[-1][1])]
    return {
        "name": f"memory cuda:{index}",
        "x": [axis.at(when) for when, _ in points],
        "y": [nbytes for _, nbytes in points],
        "yaxis": y,
        "mode": "lines",
        "line": {"shape": "hv", "width": 1.5, "color": MEMORY},
        "fill": "tozeroy",
        "fillcolor": faint(MEMORY, 0.25),
        "hovertext": [f"<b>cuda:{index}</b>: tensors hold {size(nbytes)}" for _, nbytes in points],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }


def _peak(index: int, curve: Curve, axis: Axis, y: str) -> dict[str, Any]:
    """A mark at the peak, with its size; the text leans to the side where there is room."""
    when, most = max(curve, key=lambda point: point[1])
    late = axis.at(when) > (axis.at(axis.first_ns) + axis.at(axis.last_ns)) / 2
    return {
        "name": f"peak cuda:{index}",
        "x": [axis.at(when)],
        "y": [most],
        "yaxis": y,
        "mode": "markers+text",
        "marker": {"color": MEMORY, "size": 7},
        "text": [f"peak {size(most)}"],
        "textposition": "top left" if late else "top right",
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }


def lanes_layout(
    lines: Sequence[str], rows: Sequence[Lane], plot_px: float, times: Mapping[str, Any], used: Theme
) -> dict[str, Any]:
    """The layout of lanes under a title of `lines`; `times` is what is particular about their axis of time."""
    top = 12 + LINE_PX * len(lines)
    return {
        **layout(used),
        "title": {"text": "<br>".join(map(plain, lines)), "font": {"size": 13}, "x": 0.01, "xanchor": "left", "y": 1,
                  "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        "barmode": "overlay",
        "bargap": 0.001,  # none, but without any, plotly would round the ends of all bars to pixels
        "uniformtext": {"mode": "hide", "minsize": 10},
        "hoverlabel": {"align": "left"},
        "hovermode": "closest",
        "dragmode": "zoom",
        "height": top + plot_px + 110,
        "margin": {"l": 10, "r": 34, "t": top, "b": 10},
        "modebar": {"orientation": "v"},
        "xaxis": {**times, "showspikes": True, "spikemode": "across", "spikethickness": 1, "spikedash": "dot"},
        "yaxis": {"range": [0.4, len(rows) + 0.6], "fixedrange": True, "showgrid": False, "automargin": True,
                  "tickvals": [len(rows) - place for place in range(len(rows))],
                  "ticktext": [f"{plain(lane.label)} " for lane in rows], "zeroline": False},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": -60 / plot_px, "yanchor": "top",
                   "itemclick": False, "itemdoubleclick": False},
    }  # fmt: skip


def time_axis(width: Sequence[float], title: str, used: Theme) -> dict[str, Any]:
    """An axis of time from one end to the other."""
    title_ = {"text": title, "font": {"size": 13}}
    return {"range": list(width), "title": title_, "zeroline": False, "gridcolor": used.grid}


def _lay_out(drawn: Any, rows: Sequence[Lane], lines: Sequence[str], axis: Axis, strips: _Strips, used: Theme) -> None:
    """Set title, axes and legend."""
    plot_px, count = strips.plot_px, len(strips.devices)
    ends = axis.at(axis.first_ns), axis.at(axis.last_ns)
    times = time_axis(ends, f"{axis.unit} since the recording began", used)
    anchor = {"anchor": _y(count - 1) if count else "y"}
    drawn.update_layout(**lanes_layout(lines, rows, plot_px, times | anchor, used))
    drawn.update_layout(yaxis={"domain": [1 - strips.lanes_px / plot_px, 1]})
    for number, index in enumerate(strips.devices):
        ticks = byte_ticks(strips.most, 2 if count == 1 else 1)
        own = "memory held by tensors" if count == 1 else f"cuda:{index} memory"
        drawn.update_layout({
            f"yaxis{number + 2}": {
                "domain": strips.domain(number), "range": [0, strips.top], "fixedrange": True, "tickvals": ticks,
                "ticktext": [f"{size(tick)} " if tick else "0 " for tick in ticks], "automargin": True,
                "zeroline": False, "gridcolor": used.grid,
            }
        })  # fmt: skip
        drawn.add_annotation(
            text=own, xref="paper", yref="paper", x=0.004, y=strips.domain(number)[1], xanchor="left", yanchor="bottom",
            showarrow=False, font={"size": 12},
        )  # fmt: skip
