"""The figure of the allocations: every tensor a band over the sequence of allocations and frees.

It is the picture that PyTorch's memory visualiser draws of a memory snapshot (torch/utils/viz/MemoryViz.js), with the
user's line first, phases and modules above, and colours by what the memory is for.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken
from fakegpu_lab.recording_views import peak
from fakegpu_lab.recording_views.bands import bands, columns
from fakegpu_lab.recording_views.figures.axis import byte_ticks
from fakegpu_lab.recording_views.figures.plotly_needed import need_plotly
from fakegpu_lab.recording_views.figures.theme import PHASES, ink_on, layout, plain, theme

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fakegpu_lab.recording_views.allocations import Allocations, Region, Tensor
    from fakegpu_lab.recording_views.bands import Band

Axes: TypeAlias = "tuple[str, str, str]"
"""Of one recording: its x axis, the y axis of its bands, the y axis of its phases and modules."""

BANDS = 300
"""Tensors that have a band of their own, the largest; the others of a category share one."""

COLUMNS = 1_000
"""Steps that are drawn; of more, those where the most memory was held."""

_HEIGHT_PX, _REGIONS = 440, 0.16
"""The figure's height; the part of it that phases and modules have."""
_GAP = 0.05
"""The part of the width between two recordings."""
_TEXT = 70


def figure(views: Mapping[str, Allocations], theme_name: str | None) -> Any:
    """Draw the allocations of one recording, or of several beside each other, to one scale."""
    need_plotly()
    from fakegpu_lab.recording_views.figures import shown

    used = theme(theme_name)
    alone = len(views) == 1
    names = {name: "" if alone else name for name in views}
    present = {tensor.category for found in views.values() for tensor in found.tensors}
    titles = [": ".join(part for part in (names[name], peak.sentence(found)) if part) for name, found in views.items()]
    drawn = shown.Figure(
        words="\n".join(_words(names[name], found) for name, found in views.items()),
        title="; ".join(titles),
        key={spoken(name): COLOURS[name] for name in NAMES if name in present},
        height=_HEIGHT_PX,
        follows=theme_name is None,
        solid=True,
        tables={f"What made the peak: {name}".removesuffix(": " * alone + name * alone): peak.table(found)
                for name, found in views.items()},
    )  # fmt: skip
    most = max(found.peak for found in views.values()) or 1
    width = (1 - _GAP * (len(views) - 1)) / len(views)
    for category in NAMES:
        if category in present:  # an entry of the legend
            drawn.add_bar(x=[None], y=[None], name=spoken(category), marker={"color": COLOURS[category]})
    for place, (name, found) in enumerate(views.items()):
        axes = (f"x{place + 1}", f"y{2 * place + 1}", f"y{2 * place + 2}")
        stack = _Stack(columns(found, COLUMNS))
        for band in bands(found, BANDS):
            outline = stack.put(band)
            if outline[0]:
                drawn.add_scatter(**_polygon(band, outline, axes))
        drawn.add_scatter(**_peak(found, axes))
        for row, regions in enumerate((found.modules, found.phases)):
            if regions:
                drawn.add_bar(**_regions(regions, row, axes))
        left = place * (width + _GAP)
        _lay_out_one(drawn, found, place, [left, left + width], most, names[name])
    drawn.update_layout(
        **layout(used),
        title={"text": "<br>".join(map(plain, titles)), "font": {"size": 13}, "x": 0.01, "xanchor": "left", "y": 1,
               "yref": "container", "yanchor": "top", "pad": {"t": 10}},
        barmode="overlay", bargap=0, uniformtext={"mode": "hide", "minsize": 10}, hovermode="closest",
        hoverlabel={"align": "left"}, dragmode="zoom", modebar={"orientation": "v"}, height=_HEIGHT_PX + 60,
        margin={"l": 10, "r": 34, "t": 18 + 19 * len(views), "b": 10},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.16, "yanchor": "top", "itemclick": False,
                "itemdoubleclick": False},
    )  # fmt: skip
    return drawn


def _said(band: Band) -> str:
    """What the hover says of a band."""
    if band.own:
        return _hover(band.tensors[0])
    when = "too small for a band of their own" if band.tensors[0].first else "from before the recording"
    largest = size(max(tensor.nbytes for tensor in band.tensors))
    several_ = several(len(band.tensors), "tensor")
    return f"<b>{spoken(band.category)}</b><br>{several_} {when}<br>the largest has {largest}"


def _hover(tensor: Tensor) -> str:
    lines = [", ".join(part for part in (f"<b>{size(tensor.nbytes)}</b>", peak.shape_of(tensor)) if part)]
    for number, frame in enumerate(tensor.stack):
        text = frame.text if len(frame.text) <= _TEXT else frame.text[: _TEXT - 1] + "…"
        code = f"  <i>{html.escape(text)}</i>" if text else ""
        lines.append(f"{'' if number == 0 else 'called from '}{html.escape(frame.line)}{code}")
    what = ", ".join(
        part for part in (spoken(tensor.category), f"made in {tensor.phase}" if tensor.phase else "") if part
    )
    lines.append(f"{what} by {html.escape(tensor.op)}" + (f" of {html.escape(tensor.module)}" if tensor.module else ""))
    lived = duration(tensor.end_ns - tensor.start_ns)
    lines.append(f"held for {lived}" if tensor.freed else "still held at the end")
    return "<br>".join(lines)


class _Stack:
    """The offsets of bands on top of each other."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.columns = np.array(steps)
        self.below = np.zeros(len(steps), dtype=np.int64)

    def put(self, band: Band) -> tuple[list[float], list[int]]:
        """Put a band on top; its outline as x and y."""
        heights = np.zeros(int(self.columns[-1]) + 2, dtype=np.int64)
        for step, nbytes in band.changes:
            heights[step] += nbytes
        here = np.cumsum(heights)[self.columns]
        alive = np.flatnonzero(here)
        low, high = self.below, self.below + here
        self.below = high
        if not len(alive):
            return [], []
        first, last = int(alive[0]), int(alive[-1])
        changed = np.flatnonzero(np.diff(low[first : last + 1]) | np.diff(high[first : last + 1])) + first + 1
        starts = [first, *changed.tolist()]
        ends = [*changed.tolist(), last + 1]
        edges = [*(self.columns - 0.5).tolist(), self.columns[-1] + 0.5]
        xs, tops, bottoms = [], [], []
        for start, end in zip(starts, ends, strict=True):
            xs += [edges[start], edges[end]]
            tops += [int(high[start])] * 2
            bottoms += [int(low[start])] * 2
        return [*xs, *reversed(xs)], [*tops, *reversed(bottoms)]


def _polygon(band: Band, outline: tuple[list[float], list[int]], axes: Axes) -> dict[str, Any]:
    return {
        "name": spoken(band.category),
        "x": outline[0],
        "y": outline[1],
        "xaxis": axes[0],
        "yaxis": axes[1],
        "mode": "lines",
        "line": {"width": 0.5, "color": "rgba(0, 0, 0, 0.2)"},
        "fill": "toself",
        "fillcolor": COLOURS[band.category],
        "hoveron": "fills",
        "hoverinfo": "text",
        "text": _said(band),
        "showlegend": False,
    }


def _peak(found: Allocations, axes: Axes) -> dict[str, Any]:
    """A line at the peak, with its size."""
    late = found.peak_step > found.steps / 2
    return {
        "name": "peak",
        "x": [found.peak_step, found.peak_step],
        "y": [0, found.peak],
        "xaxis": axes[0],
        "yaxis": axes[1],
        "mode": "lines+markers+text",
        "line": {"width": 1.5, "dash": "dot", "color": "#777777"},
        "marker": {"size": [0, 8], "color": "#777777"},
        "text": ["", f"peak {size(found.peak)}"],
        "textposition": "top left" if late else "top right",
        "hoverinfo": "skip",
        "showlegend": False,
        "cliponaxis": False,
    }


def _regions(regions: Sequence[Region], row: int, axes: Axes) -> dict[str, Any]:
    """Phases or modules, as bars above the bands."""
    names = [region.name for region in regions]
    colours = [PHASES.get(name, "#A7ADB8") for name in names]
    return {
        "orientation": "h",
        "y": [row] * len(names),
        "base": [region.first - 0.5 for region in regions],
        "x": [region.last - region.first for region in regions],
        "xaxis": axes[0],
        "yaxis": axes[2],
        "width": 0.86,
        "marker": {"color": colours, "line": {"width": 1, "color": "rgba(0, 0, 0, 0.4)"}},
        "text": [plain(name if name in PHASES else name.partition(".")[2] or name) for name in names],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": [ink_on(colour) for colour in colours]},
        "textangle": 0,
        "hovertext": [html.escape(name) for name in names],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "showlegend": False,
    }  # fmt: skip


def _lay_out_one(drawn: Any, found: Allocations, place: int, domain: list[float], most: int, name: str) -> None:
    """Set the axes of one recording."""
    x, y, above = (f"axis{number}" for number in (place + 1, 2 * place + 1, 2 * place + 2))
    ticks = byte_ticks(most, 4)
    shown = place == 0
    rows = [text for text, regions in (("module ", found.modules), ("phase ", found.phases)) if regions]
    drawn.update_layout({
        f"x{x}": {"domain": domain, "anchor": f"y{2 * place + 1}", "range": [-0.5, found.steps + 0.5],
                  "zeroline": False, "showgrid": False,
                  "title": {"text": f"{plain(name)}: " * bool(name) + "allocations and frees, in order",
                            "font": {"size": 13}}},
        f"y{y}": {"domain": [0, 1 - _REGIONS - 0.02], "anchor": f"x{place + 1}", "range": [0, most * 1.12],
                  "tickvals": ticks, "automargin": shown, "zeroline": False,
                  "showticklabels": shown, "ticktext": [f"{size(tick)} " if tick else "0 " for tick in ticks]},
        f"y{above}": {"domain": [1 - _REGIONS, 1], "anchor": f"x{place + 1}", "range": [-0.5, 1.5],
                      "fixedrange": True, "showgrid": False, "zeroline": False, "automargin": shown,
                      "tickvals": [0, 1] if shown and rows else [], "ticktext": ["module ", "phase "]},
    })  # fmt: skip


def _words(name: str, found: Allocations) -> str:
    """What a recording's part shows."""
    held: dict[str, int] = {}
    for tensor in found.tensors:
        if tensor.at_peak:
            held[tensor.category] = held.get(tensor.category, 0) + tensor.nbytes
    parts = ", ".join(f"{spoken(category)} {size(held[category])}" for category in NAMES if category in held)
    said = f"{name}: " if name else ""
    return (
        f"{said}{several(found.steps, 'step')}; tensors held {size(found.heights[0])} at first and "
        f"{size(found.heights[-1])} at the end. {peak.sentence(found)}: {parts}."
    )
