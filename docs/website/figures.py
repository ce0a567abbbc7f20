"""A plotly figure on a page: drawn by the browser, zoomable, in the page's colours.

plotly's library is copied once from the Python package, so that the website needs no other server. static/figures.js
draws a figure when it comes into view.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

MIME = "application/vnd.plotly.v1+json"


def library() -> Path:
    """The plotly library for browsers, as the Python package includes it."""
    import plotly

    return Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def figure_html(figure: dict[str, Any], above: str = "") -> str:
    """HTML of a figure (its JSON), with what a notebook shows above it.

    The class is that of JupyterLab's outputs: the figures' own style sheets refer to it.
    """
    height = figure.get("layout", {}).get("height") or 450
    data = json.dumps(figure, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<div class="jp-OutputArea fg-figure">{above}'
        f'<div class="fg-plot" style="min-height: {height:.0f}px" role="group" aria-label="{_words(figure)}"></div>'
        f'<script type="application/json">{data}</script></div>'
    )


def recorded_html(figure: Any) -> str:
    """HTML of a recording's figure, with its title, its key and its words above it."""
    import plotly.graph_objects as go

    bare = go.Figure(figure)
    bare.update_layout(title=None, showlegend=False, margin_t=14, height=figure.layout.height)
    return figure_html(json.loads(bare.to_json()) | {"config": _config()}, figure.above())


def _config() -> dict[str, Any]:
    from fakegpu_lab.recording_views.figures.shown import CONFIG

    return CONFIG


def _words(figure: dict[str, Any]) -> str:
    title = figure.get("layout", {}).get("title") or {}
    return html.escape(title.get("text") or "A figure", quote=True)
