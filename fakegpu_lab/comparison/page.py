"""A comparison as a page: a file of its own, which needs no network."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from fakegpu_lab.recording_views.figures.theme import theme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.formatting.table import Table

_STYLE = (
    "body {{ font-family: system-ui, sans-serif; color: {text}; background: {paper}; margin: 1.5em auto; "
    "max-width: 75em; padding: 0 1em }} table {{ border-collapse: collapse; margin: 1em 0 }} "
    "td, th {{ padding: 2px 10px; white-space: nowrap; border-bottom: 1px solid {grid} }} "
    "caption {{ font-weight: bold }} "
    "body > p, body > ul {{ max-width: 75ch; line-height: 1.5 }} body > p {{ font-size: 110% }} "
    ".table {{ overflow-x: auto }}"
)


def page(title: str, said: str, tables: Sequence[Table], figure: Any, theme_name: str | None) -> str:
    """The page's HTML; `said` is HTML, too."""
    used = theme(theme_name)
    style = _STYLE.format(text=used.text, paper=used.paper, grid=used.grid)
    shown = "\n".join(f'<div class="table">{table._repr_html_()}</div>' for table in tables)
    drawn = figure.to_html(full_html=False, include_plotlyjs=True)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{said}\n{drawn}\n"
        f"{shown}\n</body></html>\n"
    )
