"""How a notebook shows a figure: in JupyterLab's colours, its title and its key as text that can wrap, and in words.

plotly draws titles and legends inside the picture, where they take its height when it is narrow, and paints its own
colours. So in a notebook they stand above the picture, as HTML.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import plotly.io

from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fakegpu_lab.formatting.table import Table

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "toggleSpikelines"],
    "responsive": True,
}
"""plotly's configuration: a toolbar with what is of use here (a PNG, zoom, pan, back to the whole)."""

_MARGIN_PX = 14
_PROSE = "max-width: 75ch; white-space: pre-line"

# :has() reaches the figure, which is another output of the cell. Where there are no such variables, nothing changes.
_STYLE = """
.jp-OutputArea:has(.fakegpu-figure-auto) .js-plotly-plot {
  .main-svg { background: transparent !important; }
  .bglayer .bg, .bg { fill: transparent !important; }
  g[class$="tick"] text, .infolayer [class$="title"], .gtitle, .annotation-text, .legendtext,
  .textpoint text { fill: var(--jp-ui-font-color1) !important; }
  .gridlayer path, .zerolinelayer path { stroke: var(--jp-border-color2) !important; }
  .modebar-btn path { fill: var(--jp-ui-font-color2) !important; }
}
"""
_FAINT = """
.jp-OutputArea:has(.fakegpu-faint) .js-plotly-plot .subplot:not(.xy) .bartext {
  fill: var(--jp-ui-font-color1) !important;
}
"""
"""For a figure whose phases are faint, with the page showing through; on solid bars plotly's own colour is readable."""


_ROOM = """
.jp-OutputArea-child:has(.fakegpu-height-{height}) + .jp-OutputArea-child .js-plotly-plot {{
  min-height: {height}px;
}}
"""
"""JupyterLab draws a figure again when the theme changes. By then plotly has dropped its height, and takes its place's:
an output's place is as high as what is in it, so without this the figure would have no height, and vanish."""


class Figure(go.Figure):  # type: ignore[misc]
    """A plotly figure that a notebook shows with its title, its key and its words above it."""

    def __init__(
        self,
        *,
        words: str,
        title: str,
        key: Mapping[str, str],
        height: int,
        follows: bool,
        tables: Mapping[str, Table] | None = None,
        solid: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._key, self._height, self._follows = title, key, height, follows
        self._solid = solid
        self._more = {"The figure in words": f"<div style='{_PROSE}'>{html.escape(words)}</div>"}
        self._more |= {name: table._repr_html_() for name, table in (tables or {}).items()}

    def show(self, *args: Any, **kwargs: Any) -> Any:
        """As plotly's, with a toolbar of useful buttons."""
        kwargs["config"] = CONFIG | (kwargs.get("config") or {})
        return super().show(*args, **kwargs)

    def to_html(self, *args: Any, **kwargs: Any) -> Any:
        """As plotly's, with a toolbar of useful buttons; a page has a language and a title."""
        kwargs["config"] = CONFIG | (kwargs.get("config") or {})
        return self._named(super().to_html(*args, **kwargs))

    def write_html(self, file: Any, *args: Any, **kwargs: Any) -> None:
        """As plotly's, with a toolbar of useful buttons; a page has a language and a title."""
        kwargs["config"] = CONFIG | (kwargs.get("config") or {})
        super().write_html(file, *args, **kwargs)
        if isinstance(file, (str, Path)):
            page = Path(file)
            page.write_text(self._named(page.read_text(encoding="utf-8")), encoding="utf-8")

    def _named(self, page: str) -> str:
        title = html.escape(self._title or "fakegpu_lab")
        return page.replace("<html>", '<html lang="en">', 1).replace("<head>", f"<head><title>{title}</title>", 1)

    def without_title(self) -> Figure:
        """The figure, for where the title stands elsewhere."""
        self._title = ""
        return self

    def _ipython_display_(self) -> None:
        if getattr(environment.shell(), "kernel", None) is None or not plotly.io.renderers.render_on_display:
            super()._ipython_display_()
            return
        from IPython.display import HTML, display

        display(HTML(self.above()))  # type: ignore[no-untyped-call]
        bare = go.Figure(self)
        bare.update_layout(title=None, showlegend=False, margin_t=_MARGIN_PX, height=self._height)
        bare.show(config=CONFIG)

    def above(self) -> str:
        """What stands above the picture, as HTML."""
        style = _ROOM.format(height=self._height)
        if self._follows:
            style += _STYLE + ("" if self._solid else _FAINT)
        kind = "fakegpu-figure-auto" if self._follows else "fakegpu-figure"
        kind += ("" if self._solid else " fakegpu-faint") + f" fakegpu-height-{self._height}"
        title = f"<div>{html.escape(self._title)}</div>" if self._title else ""
        more = "".join(
            f'<details style="margin: 4px 0"><summary>{name}</summary>{text}</details>'
            for name, text in self._more.items()
        )
        return f'<div class="{kind}"><style>{style}</style>{title}{self._swatches()}{more}</div>'

    def _swatches(self) -> str:
        swatch = "display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid #88888888"
        entries = "".join(
            f'<li style="white-space: nowrap"><span style="{swatch}; background: {colour}"></span>'
            f"{html.escape(name)}</li>"
            for name, colour in self._key.items()
        )
        layout = "display: flex; flex-wrap: wrap; gap: 0 14px; margin: 4px 0; padding: 0; list-style: none"
        return f'<ul aria-label="Colors" style="{layout}; font-size: 90%">{entries}</ul>' if entries else ""
