"""Animated figures for lessons: the copies of a recording, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.figures.plotly_needed import need_plotly
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.time.records import Transfer
    from fakegpu_lab.trace import Trace

MOST = 40
"""The most copies in an animation: nobody watches a longer one."""

FEW = 4
"""A machine with at most this many devices is shown whole, even devices without copies."""

_STEPS = 8
_HOST, _DEVICE, _DOT = "#6b7280", "#0a7d5a", "#d9822b"


def journey(trace: Trace) -> Any:
    """Animate the copies one by one: the host below, the devices above, a dot for each copy.

    Parameters
    ----------
    trace
        A recording. The first `MOST` copies are shown; of more than `FEW` devices, only those that took part.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FakeGpuError
        plotly is not installed, or nothing was copied.
    """
    need_plotly()
    import plotly.graph_objects as go

    copies = trace.transfers[:MOST]
    if not copies:
        raise FakeGpuError("Nothing was copied in this recording, so there is nothing to show.")
    shown = _shown(len(trace.machine.devices), trace.transfers)
    devices = len(shown)
    at: dict[int | None, tuple[float, float]] = {None: ((devices - 1) / 2, 0.0)}
    at.update({index: (float(place), 1.0) for place, index in enumerate(shown)})
    frames = []
    for number, copy in enumerate(copies, 1):
        (x0, y0), (x1, y1) = at[copy.source], at[copy.target]
        for step in range(_STEPS + 1):
            part = step / _STEPS
            dot = go.Scatter(x=[x0 + (x1 - x0) * part], y=[y0 + (y1 - y0) * part])
            caption = go.Scatter(text=[_caption(number, len(trace.transfers), copy)])
            frames.append(go.Frame(data=[dot, caption], traces=[1, 2], name=f"{number}.{step}"))
    figure = go.Figure(
        data=[
            _places(go, at),
            _dot(go, at[copies[0].source]),
            _instruction(go, (devices - 1) / 2, len(trace.transfers)),
        ],
        frames=frames,
    )
    figure.update_layout(
        height=300,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        showlegend=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        xaxis={"visible": False, "range": [-0.9, devices + 0.1]},
        yaxis={"visible": False, "range": [-0.75, 1.6]},
        updatemenus=[_buttons()],
        meta={"copies": len(trace.transfers)},
    )
    return figure


def _shown(count: int, copies: Sequence[Transfer]) -> list[int]:
    """The ordinals of the devices in the figure."""
    busy = {end for copy in copies for end in (copy.source, copy.target) if end is not None}
    return [index for index in range(count) if count <= FEW or index in busy]


def _caption(number: int, total: int, copy: Transfer) -> str:
    """The text that is shown while a copy travels."""
    text = place(copy.line).text
    names = ["the host" if end is None else f"cuda:{end}" for end in (copy.source, copy.target)]
    described = (
        f"copy {number} of {total}: {size(copy.nbytes)} from {names[0]} to {names[1]}, {duration(copy.duration * 1e9)}"
    )
    return f"{described}<br><i>{text[:70]}</i>"


def _places(go: Any, at: dict[int | None, tuple[float, float]]) -> Any:
    return go.Scatter(
        x=[x for x, _ in at.values()],
        y=[y for _, y in at.values()],
        mode="markers+text",
        marker={"symbol": "square", "size": 54, "color": [_HOST if key is None else _DEVICE for key in at]},
        text=["  host" if key is None else f"cuda:{key}" for key in at],
        textposition=["middle right" if key is None else "top center" for key in at],
        textfont={"color": "#8a8f98", "size": 13},
        hoverinfo="skip",
    )


def _dot(go: Any, start: tuple[float, float]) -> Any:
    marker = {"size": 16, "color": _DOT, "line": {"color": "white", "width": 2}}
    return go.Scatter(x=[start[0]], y=[start[1]], mode="markers", marker=marker, hoverinfo="skip")


def _instruction(go: Any, middle: float, total: int) -> Any:
    text = f"{several(total, 'copy', 'copies')}: press Play"
    font = {"size": 13, "color": "#8a8f98"}
    return go.Scatter(x=[middle], y=[-0.5], mode="text", text=[text], textfont=font, hoverinfo="skip")


def _buttons() -> dict[str, Any]:
    motion = {"frame": {"duration": 90, "redraw": False}, "transition": {"duration": 0}, "fromcurrent": True}
    still = {"frame": {"duration": 0, "redraw": False}, "mode": "immediate"}
    return {
        "type": "buttons",
        "direction": "left",
        "x": 0.0,
        "y": 0.0,
        "xanchor": "left",
        "yanchor": "bottom",
        "font": {"color": "#1f2937"},
        "bgcolor": "#e5e7eb",
        "buttons": [
            {"label": "Play", "method": "animate", "args": [None, motion]},
            {"label": "Pause", "method": "animate", "args": [[None], still]},
        ],
    }
