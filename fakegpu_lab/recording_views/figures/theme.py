"""The colours of the figures, light and dark."""

from __future__ import annotations

import html
from typing import Any, NamedTuple

from fakegpu_lab.hardware.errors import FakeGpuError

# Okabe and Ito's colours, distinct for people with every kind of colour vision (jfly.uni-koeln.de/color, 2008). All
# others are of middle brightness: JupyterLab's theme may change while a figure is shown, and they suit both.
BARS = {
    "matmul": "#0072B2", "convolution": "#56B4E9", "attention": "#D55E00", "elementwise": "#E69F00",
    "reduction": "#009E73", "normalization": "#CC79A7", "optimizer": "#B8A800", "copy": "#8C6239",
    "collective": "#8F63BF", "other": "#8A8A8A", "waits for ranks": "#B39DD0",
    "python": "#3F8F89", "dispatch": "#8FB3B0", "launch": "#6F7785", "host waits": "#A3A9B4", "host works": "#4F7A8C",
    "forward": "#7FA8C9", "backward": "#CF9A72",
}  # fmt: skip
PHASES = {"forward": "#7FA8C9", "backward": "#CF9A72", "optimizer": "#A48BC0"}
MEMORY = "#2E86C9"


class Theme(NamedTuple):
    """What differs between light and dark."""

    template: str
    paper: str
    text: str
    grid: str


THEMES = {
    "light": Theme("plotly_white", "#FFFFFF", "#222222", "#E1E4E8"),
    "dark": Theme("plotly_dark", "#111111", "#EEEEEE", "#3A3F47"),
}


def theme(name: str | None) -> Theme:
    """A theme by its name; None: as plotly's default template."""
    if name is None:
        import plotly.io

        name = "dark" if "dark" in (plotly.io.templates.default or "") else "light"
    if name not in THEMES:
        raise FakeGpuError(f"There is no theme {name!r}: it can be 'light' or 'dark'.")
    return THEMES[name]


def plain(text: str) -> str:
    """A text for plotly, which reads texts as HTML: names come from files, too."""
    return html.escape(text, quote=False)


def ink_on(colour: str) -> str:
    """Black or white, whichever can be read on a colour (WCAG 2's relative luminance).

    >>> ink_on("#0072B2"), ink_on("#7FA8C9")
    ('#ffffff', '#000000')
    """
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


def faint(colour: str, opacity: float) -> str:
    """A colour that lets through what is behind it.

    >>> faint("#0072B2", 0.2)
    'rgba(0, 114, 178, 0.2)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {opacity})"


def layout(used: Theme) -> dict[str, Any]:
    """The part of a figure's layout that the theme decides."""
    return {"template": used.template, "paper_bgcolor": used.paper, "plot_bgcolor": used.paper,
            "font": {"size": 13, "color": used.text}}  # fmt: skip
