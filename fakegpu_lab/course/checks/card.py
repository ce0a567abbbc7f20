"""A check's result for people: an HTML card, and the same as text."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

from fakegpu_lab.course.expect.outcome import stated

if TYPE_CHECKING:
    from fakegpu_lab.course.checks.record import CheckRecord, PartRecord

BORDER = "var(--jp-border-color2, #d0d0d0)"
MUTED = "var(--jp-ui-font-color2, #616161)"
GOOD, _OPEN = "#0a7d5a", "#b3541e"
"""Teal and rust: distinct for color-blind readers too."""


def _text(color: str) -> str:
    """The color for text: nearer to the page's ink, so that it is readable on light and dark themes."""
    return f"color-mix(in srgb, {color} 65%, var(--jp-ui-font-color1, {color}))"


def number(points: float) -> str:
    """Write a number of points.

    >>> number(2.0), number(1.5), number(2 / 3)
    ('2', '1.5', '0.67')
    """
    return f"{points:.2f}".rstrip("0").rstrip(".")


def of_points(earned: float, points: float) -> str:
    """Write the points earned, of the points possible; they are not all of them if any part is missing.

    >>> of_points(1.5, 2), of_points(0, 1), of_points(3.996, 4)
    ('1.5 of 2 points', '0 of 1 point', '3.99 of 4 points')
    """
    if earned < points and number(earned) == number(points):
        earned = math.floor(100 * earned) / 100
    return f"{number(earned)} of {number(points)} point{'s' * (points != 1)}"


def _points(record: CheckRecord) -> str:
    of = of_points(record.score, record.points)
    if record.more_points:
        of += f", and {number(record.more_points)} by hidden parts when it is graded"
    return of


def _headline(record: CheckRecord) -> str:
    name = record.title or record.exercise
    name += " –" if name.endswith(("?", "!")) else ":"
    if record.unsolved:
        return f"{name} not solved yet"
    return f"{name} solved" if record.passed else f"{name} not quite yet"


def _rows(part: PartRecord) -> list[tuple[str, str]]:
    """What is said of a part below its sentence; of one that is met, what was found."""
    if part.met and part.earned >= part.points:
        return [("found", part.found)] if part.found and part.found not in part.what else []
    where = ": ".join(text for text in (part.line, part.code) if text)
    rows = [("expected", part.expected), ("found", part.found), ("line", where), ("hint", part.hint)]
    return [(name, content) for name, content in rows if content]


def _hint_line(record: CheckRecord) -> str:
    if record.passed or not record.hints:
        return ""
    steps = "a hint" if record.hints == 1 else f"{record.hints} hints, one at a time"
    return f"Stuck? %hint {record.exercise} gives {steps}."


def text(record: CheckRecord) -> str:
    """Write the result as lines of text."""
    lines = [f"{_headline(record)} ({_points(record)})"]
    for part in record.parts:
        lines.append(f"  {'✓' if part.met else '✗'} {stated(part.what, part.met)}")
        if part.message:
            lines.append(f"      {part.message}")
        lines += [f"      {name}: {content}" for name, content in _rows(part)]
    lines += [f"  {line}" for line in (*record.note.splitlines(), _hint_line(record)) if line]
    return "\n".join(lines)


def html(record: CheckRecord) -> str:
    """Draw the card. Styles are inline, because notebooks keep no style sheets; colors follow JupyterLab's theme."""
    color = GOOD if record.passed else MUTED if record.unsolved else _OPEN
    parts = "".join(_part(part) for part in record.parts)
    foot = "".join(
        f'<div style="color: {MUTED}; margin-top: 6px">{with_code(line)}</div>'
        for line in (*record.note.splitlines(), _hint_line(record))
        if line
    )
    return (
        f'<div role="group" aria-label="{escape(_headline(record), quote=True)}" style="border: 1px solid {BORDER}; '
        f'border-left: 4px solid {color}; border-radius: 4px; padding: 8px 14px; max-width: 860px; line-height: 1.45">'
        f'<div style="display: flex; justify-content: space-between; gap: 16px; flex-wrap: wrap">'
        f'<strong style="color: {_text(color)}">{escape(_headline(record))}</strong>'
        f'<span style="color: {MUTED}">{escape(_points(record))}</span></div>{parts}{foot}</div>'
    )


def _part(part: PartRecord) -> str:
    mark, color = ("✓", GOOD) if part.met else ("✗", _OPEN)
    spoken = "met" if part.met else "not met"
    rows = _table(_rows(part)) if _rows(part) else ""
    message = f'<div style="color: {MUTED}">{with_code(part.message)}</div>' if part.message else ""
    worth = (
        ""
        if not part.points
        else f'<span style="color: {MUTED}"> · {escape(of_points(part.earned, part.points))}</span>'
    )
    what = with_code(stated(part.what, part.met))
    hidden = f'<span style="color: {MUTED}"> · hidden part</span>' if part.hidden else ""
    return (
        '<div style="display: flex; gap: 8px; margin-top: 6px">'
        f'<span aria-label="{spoken}" style="color: {_text(color)}; font-weight: bold">{mark}</span>'
        f'<div style="flex: 1; min-width: 0"><div>{what}{worth}{hidden}</div>{message}{rows}</div></div>'
    )


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f'<div style="color: {MUTED}">{name}</div><div style="overflow-wrap: anywhere">'
        f"{_mono(content) if name == 'line' else with_code(content)}</div>"
        for name, content in rows
    )
    return (
        f'<div style="display: grid; grid-template-columns: 5.5em 1fr; gap: 2px 10px; margin: 2px 0 4px">{cells}</div>'
    )


def _mono(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def with_code(text: str) -> str:
    """Write text in which ``backquotes`` mark code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backquote without its partner marks no code
        return escape(text)
    return "".join(_mono(piece) if place % 2 else escape(piece) for place, piece in enumerate(pieces))
