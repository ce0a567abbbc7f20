"""A drawing: SVG with a text alternative, in the colours of the page that shows it."""

from __future__ import annotations

import html
from pathlib import Path

INK = "var(--jp-ui-font-color1, var(--fakegpu-ink, #222222))"
MUTED = "var(--jp-ui-font-color2, var(--fakegpu-muted, #5f6672))"
"""Text and lines. JupyterLab's colours; in a file, those that `Drawing.save` writes into it."""

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f63bf", "#9a9a9a")
"""Okabe and Ito's colours, and two more; all of them suit light and dark pages."""


def ink_on(colour: str) -> str:
    """The colour of text on a box of one of the palette's colours."""
    return "#ffffff" if colour in ("#0072b2", "#8f63bf") else "#111111"


_FILE_COLOURS = (
    "<style>:root { --fakegpu-ink: #222222; --fakegpu-muted: #5f6672; background: #ffffff } "
    "@media (prefers-color-scheme: dark) { "
    ":root { --fakegpu-ink: #eeeeee; --fakegpu-muted: #b4bac6; background: #111111 } }</style>"
)
_LETTER_PX = 6.6
"""The width of a letter of 12 px, about."""


class Drawing:
    """A drawing; the last line of a cell shows it, `print` says in words what is on it.

    Attributes
    ----------
    words
        What it shows, for readers who cannot see it.
    """

    def __init__(self, width: float, height: float, words: str = "") -> None:
        self.width, self.height, self.words = width, height, words
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1.0, hint: str = ""
    ) -> None:
        """Draw a box; `hint` is shown under the pointer."""
        title = f"<title>{html.escape(hint)}</title>" if hint else ""
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" rx="2" fill="{colour}" '
            f'fill-opacity="{opacity:.2f}" style="stroke: {MUTED}; stroke-width: 0.8">{title}</rect>'
        )

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, px: int = 12,
        within: float | None = None,
    ) -> None:  # fmt: skip
        """Write a line; nothing if it is wider than `within`."""
        if within is not None and len(text) * _LETTER_PX * px / 12 > within:
            return
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{px}" '
            f'style="fill: {colour}">{html.escape(text)}</text>'
        )

    def line(self, start: tuple[float, float], end: tuple[float, float], *, dashed: bool = False) -> None:
        """Draw a line."""
        self._parts.append(self._line(start, end, 'stroke-dasharray="4 3"' if dashed else ""))

    def thin(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a line that stays in the background."""
        (x0, y0), (x1, y1) = start, end
        self._parts.append(
            f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" '
            f'style="stroke: {MUTED}; stroke-width: 0.8"/>'
        )

    def fill(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """Draw a box without a border."""
        self._parts.append(
            f'<rect x="{x:.2f}" y="{y:.1f}" width="{width:.2f}" height="{height:.1f}" fill="{colour}" '
            'pointer-events="none"/>'
        )

    def dot(self, x: float, y: float, colour: str, hint: str) -> None:
        """Draw a point; `hint` is shown under the pointer."""
        self._parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{colour}" style="stroke: {INK}; stroke-width: 1">'
            f"<title>{html.escape(hint)}</title></circle>"
        )

    def arrow(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a line with a head at its end."""
        (x0, y0), (x1, y1) = start, end
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        left = (x1 - 7 * ux - 4 * uy, y1 - 7 * uy + 4 * ux)
        right = (x1 - 7 * ux + 4 * uy, y1 - 7 * uy - 4 * ux)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, left, right))
        self._parts.append(self._line(start, (x1 - 5 * ux, y1 - 5 * uy), ""))
        self._parts.append(f'<polygon points="{points}" style="fill: {INK}"/>')

    def _line(self, start: tuple[float, float], end: tuple[float, float], more: str) -> str:
        (x0, y0), (x1, y1) = start, end
        return (
            f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" {more} '
            f'style="stroke: {INK}; stroke-width: 1.4"/>'
        )

    def _repr_html_(self) -> str:
        return self._svg(f'style="max-width: {self.width:.0f}px; width: 100%; height: auto"')

    def _svg(self, attributes: str, before: str = "") -> str:
        words = html.escape(self.words, quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img" '
            f'aria-label="{words}" font-family="system-ui, sans-serif" {attributes}>{before}'
            f"{''.join(self._parts)}</svg>"
        )

    def save(self, path: str | Path) -> Path:
        """Write an SVG file, which follows the reader's light or dark theme; return its path."""
        path = Path(path)
        size = f'width="{self.width:.0f}" height="{self.height:.0f}"'
        path.write_text(self._svg(size, _FILE_COLOURS) + "\n", encoding="utf-8")
        return path

    def __str__(self) -> str:
        return self.words

    __repr__ = __str__


def legend(drawing: Drawing, x: float, y: float, entries: list[tuple[str, str]]) -> None:
    """Write the key of colours: (text, colour). Where a row is full, the drawing grows by another one."""
    left = x
    for text, colour in entries:
        width = 15 + len(text) * _LETTER_PX
        if x > left and x + width > drawing.width:
            x, y = left, y + 18
            drawing.height = max(drawing.height, y + 6)
        drawing.rect(x, y - 9, 10, 10, colour)
        drawing.text(x + 15, y, text)
        x += width + 14
