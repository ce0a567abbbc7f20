"""The figure of a recording: what worked when, what waited for what, and the memory below on the same axis."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.kernel_classes import CLASSES
from fakegpu_lab.recording_views.lanes import bands, lanes, thinned
from fakegpu_lab.recording_views.memory import memory_curve
from fakegpu_lab.recording_views.recorded import note_of_dropped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.recording_views.lanes import Bar, Lane
    from fakegpu_lab.recording_views.recorded import Recorded

BARS = 5_000
"""Bars that a browser can draw, zoom and move without delay."""

POINTS = 3_000
"""Points of a memory curve."""

BANDS = 500
"""Collectives that are drawn across the ranks' lanes; if there are more, each would be too thin to see."""

# Okabe and Ito's colours, distinct for people with every kind of colour vision (jfly.uni-koeln.de/color, 2008).
_COLOURS = {
    "matmul": "#0072B2", "convolution": "#56B4E9", "attention": "#D55E00", "elementwise": "#E69F00",
    "reduction": "#009E73", "normalisation": "#CC79A7", "optimizer": "#F0E442",
}  # fmt: skip
_THEMES: dict[str, dict[str, str]] = {
    "light": {
        "template": "plotly_white", "paper": "#FFFFFF", "text": "#222222", "memory": "#0072B2",
        "launch": "#8A8F98", "host waits": "#C9CDD3", "host works": "#5B6270",
        "forward": "#E3E7EC", "backward": "#C5CCD6", "copy": "#222222", "collective": "#6A3D9A", "other": "#999999",
        "waits for ranks": "#D8CBE6",
    },
    "dark": {
        "template": "plotly_dark", "paper": "#111111", "text": "#EEEEEE", "memory": "#56B4E9",
        "launch": "#8A8F98", "host waits": "#555B66", "host works": "#B4BAC6",
        "forward": "#3A4250", "backward": "#525C6E", "copy": "#F2F2F2", "collective": "#B497D6", "other": "#8A8A8A",
        "waits for ranks": "#4B3C5C",
    },
}  # fmt: skip
_NEUTRAL = ("launch", "host waits", "host works", "forward", "backward", "waits for ranks")
_LEGEND = {
    "launch": "host launches", "forward": "module, forward", "backward": "module, backward",
    "waits for ranks": "collective waits for the slowest rank",
}  # fmt: skip
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
_EDGED = 120
"""Bars wider than the figure's width divided by this have an edge, which separates neighbours."""

_LANE_PX, _MEMORY_PX, _LINE_PX = 34, 110, 19


@dataclass(frozen=True)
class _Axis:
    """The time axis: the part of the recording that is shown, in a unit that suits its length."""

    began_ns: int
    first_ns: int
    last_ns: int
    unit_ns: float
    unit: str

    @property
    def width_ns(self) -> int:
        return self.last_ns - self.first_ns

    def at(self, ns: int) -> float:
        """Where a time is on the axis."""
        return (ns - self.began_ns) / self.unit_ns


def figure(
    recorded: Recorded, title: str, device: int | None, start: float | None, end: float | None, theme: str | None
) -> Any:
    """Draw a recording: see `Trace.figure`."""
    go = _plotly()
    theme = theme or _default_theme()
    if theme not in _THEMES:
        raise FakeGpuError(f"There is no theme {theme!r}: it can be 'light' or 'dark'.")
    colours = _THEMES[theme]
    axis = _axis(recorded, start, end)
    rows = lanes(recorded, device, axis.first_ns, axis.last_ns)
    merged = thinned(rows, BARS)
    curves = _memory_curves(recorded, device, axis)
    drawn = go.Figure()
    across = bands(recorded, device, axis.first_ns, axis.last_ns)
    if across and len(across) <= BANDS:
        drawn.add_trace(_across(go, across, len(rows), axis, colours["collective"]))
    for kind in (*_NEUTRAL, *CLASSES):
        bars = [(len(rows) - place, bar) for place, lane in enumerate(rows) for bar in lane.bars if bar.kind == kind]
        if bars:
            drawn.add_trace(_bars(go, kind, bars, axis, colours))
    for number, (name, curve) in enumerate(curves.items()):
        dash = _DASHES[number % len(_DASHES)]
        drawn.add_trace(_memory(go, name, curve, recorded.ended_ns, axis, colours["memory"], dash))
    heights = [nbytes for curve in curves.values() for _, nbytes in curve]
    _lay_out(drawn, rows, _title_lines(recorded, title, merged), axis, heights, theme)
    return drawn


def _memory_curves(recorded: Recorded, device: int | None, axis: _Axis) -> dict[str, list[tuple[int, int]]]:
    """The memory curves of the devices that are shown, by name; devices without allocations have none."""
    shown = [each.index for each in recorded.machine.devices] if device is None else [device]
    curves = {f"cuda:{index}": _thin(memory_curve(recorded, index), axis.width_ns) for index in shown}
    return {name: curve for name, curve in curves.items() if curve}


def _title_lines(recorded: Recorded, title: str, merged: int) -> list[str]:
    """The title and the notes below it, wrapped; a number stays with its unit."""
    notes = [title]
    if merged:
        notes.append(
            f"{merged:,} of its bars are too many to draw one by one: short neighbours are drawn together. "
            "figure(start=…, end=…) shows a part in full."
        )
    notes.append(note_of_dropped(recorded))
    return [line for note in notes for line in textwrap.wrap(re.sub(r"(\d) (\S)", "\\1\u00a0\\2", note), 84)]


def _plotly() -> Any:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise FakeGpuError(
            "The figure is drawn with plotly, which is not installed: pip install plotly nbformat, and try again. "
            "Without it, trace.summary() shows a table, and trace.to_chrome_trace('trace.json') writes a file that "
            "https://ui.perfetto.dev draws."
        ) from None
    return go


def _default_theme() -> str:
    import plotly.io

    return "dark" if "dark" in (plotly.io.templates.default or "") else "light"


def _axis(recorded: Recorded, start: float | None, end: float | None) -> _Axis:
    began, ended = recorded.began_ns, recorded.ended_ns
    first = began if start is None else began + round(start * 1e9)
    last = ended if end is None else began + round(end * 1e9)
    if first > last or first > ended or last < began:
        whole = (ended - began) / 1e9
        raise FakeGpuError(
            f"figure(start={start}, end={end}) shows no part of the recording, which has {whole:.6g} seconds: both are "
            "seconds since it began, the start before the end."
        )
    last = max(last, first + 1)
    unit_ns, unit = next((pair for pair in _UNITS if last - first >= pair[0]), _UNITS[-1])
    return _Axis(began, first, last, unit_ns, unit)


def _across(go: Any, across: Sequence[tuple[int, int]], rows: int, axis: _Axis, colour: str) -> Any:
    """Bands behind all lanes, while bytes move between the ranks."""
    return go.Bar(
        orientation="h",
        y=[(rows + 1) / 2] * len(across),
        base=[axis.at(start) for start, _ in across],
        x=[(end - start) / axis.unit_ns for start, end in across],
        width=rows + 0.2,
        marker={"color": colour, "opacity": 0.14, "line": {"width": 0}},
        hoverinfo="skip",
        showlegend=False,
    )


def _bars(go: Any, kind: str, bars: Sequence[tuple[int, Bar]], axis: _Axis, colours: dict[str, str]) -> Any:
    """The bars of one kind, each with the number of its row."""
    colour = _COLOURS.get(kind) or colours[kind]
    marker: dict[str, Any] = {"color": colour, "line": {"color": colours["paper"]}}
    edged_ns = axis.width_ns / _EDGED
    marker["line"]["width"] = [1 if bar.end_ns - bar.start_ns > edged_ns else 0 for _, bar in bars]
    if kind in ("host waits", "waits for ranks"):
        marker["pattern"] = {"shape": "/", "size": 5, "solidity": 0.25, "fgcolor": colours["text"]}
    return go.Bar(
        name=_LEGEND.get(kind, kind),
        orientation="h",
        y=[row for row, _ in bars],
        base=[axis.at(bar.start_ns) for _, bar in bars],
        x=[(bar.end_ns - bar.start_ns) / axis.unit_ns for _, bar in bars],
        width=0.74,
        marker=marker,
        text=[bar.label for _, bar in bars],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        hovertext=[bar.hover for _, bar in bars],
        hovertemplate="%{hovertext}<extra></extra>",
    )


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


def _memory(
    go: Any, name: str, curve: Sequence[tuple[int, int]], ended_ns: int, axis: _Axis, colour: str, dash: str
) -> Any:
    points = [*curve, (ended_ns, curve[-1][1])]
    return go.Scatter(
        name=f"memory {name}",
        x=[axis.at(when) for when, _ in points],
        y=[nbytes for _, nbytes in points],
        yaxis="y2",
        mode="lines",
        line={"shape": "hv", "width": 1.5, "color": colour, "dash": dash},
        fill="tozeroy" if dash == "solid" else None,
        fillcolor=f"rgba({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))}, 0.19)",
        hovertext=[f"<b>{name}</b>: tensors hold {size(nbytes)}" for _, nbytes in points],
        hovertemplate="%{hovertext}<extra></extra>",
        showlegend=dash != "solid",
    )


def _lay_out(
    drawn: Any, rows: Sequence[Lane], lines: Sequence[str], axis: _Axis, heights: Sequence[int], theme: str
) -> None:
    """Set title, axes and legend; `heights` are the bytes of all memory curves, empty if none is drawn."""
    lanes_px = max(len(rows), 1) * _LANE_PX
    plot_px = lanes_px + (_MEMORY_PX + 16 if heights else 0)
    split = 1 - lanes_px / plot_px
    top = 12 + _LINE_PX * len(lines)
    times = {
        "range": [axis.at(axis.first_ns), axis.at(axis.last_ns)],
        "title": {"text": f"{axis.unit} since the recording began", "font": {"size": 13}},
        "zeroline": False,
    }
    drawn.update_layout(
        template=_THEMES[theme]["template"],
        font={"size": 13},
        title={"text": "<br>".join(lines), "font": {"size": 13}, "x": 0.01, "xanchor": "left", "y": 1,
               "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        barmode="overlay",
        bargap=0,
        uniformtext={"mode": "hide", "minsize": 10},
        hoverlabel={"align": "left"},
        hovermode="closest",
        dragmode="zoom",
        height=top + plot_px + 110,
        margin={"l": 10, "r": 14, "t": top, "b": 10},
        xaxis={**times, "anchor": "y2" if heights else "y", "showspikes": True, "spikemode": "across",
               "spikethickness": 1, "spikedash": "dot"},
        yaxis={"domain": [split, 1], "range": [0.4, len(rows) + 0.6], "fixedrange": True, "showgrid": False,
               "tickvals": [len(rows) - place for place in range(len(rows))],
               "ticktext": [f"{lane.label} " for lane in rows], "automargin": True, "zeroline": False},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -60 / plot_px, "yanchor": "top",
                "itemclick": False, "itemdoubleclick": False},
    )  # fmt: skip
    if heights:
        most = max(*heights, 1)
        ticks = [0, most // 2, most]
        drawn.update_layout(
            yaxis2={"domain": [0, _MEMORY_PX / plot_px], "range": [0, most * 1.08], "fixedrange": True,
                    "tickvals": ticks, "ticktext": ["0 ", f"{size(ticks[1])} ", f"{size(most)} "], "automargin": True,
                    "zeroline": False}
        )  # fmt: skip
        drawn.add_annotation(
            text="memory held by tensors, as the kernels above take and free it", xref="paper", yref="paper", x=0.005,
            y=_MEMORY_PX / plot_px,
            xanchor="left", yanchor="bottom", showarrow=False, font={"size": 12},
        )  # fmt: skip
