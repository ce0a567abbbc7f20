"""A finding (what was seen, where, what it costs, what to do), and the list of findings that shows itself."""

from __future__ import annotations

import html
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.units import duration
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fakegpu_lab.hardware.time.records import Record

OFTEN = 4
"""How many times a line must do something to be reported."""
WIDTH = 110
"""The characters of a line of text."""


def total_ns(records: Iterable[Record]) -> int:
    """How long they take together, nanoseconds."""
    return sum(record.end_ns - record.start_ns for record in records)


@dataclass(frozen=True)
class Finding:
    """Something that could be better.

    Attributes
    ----------
    rule
        The rule's name, such as ``sync_each_step``.
    title
        The finding in a few words.
    text
        What was seen, with numbers.
    remedy
        What to do.
    line
        Where, as ``file:number``; empty if it belongs to no line.
    cost_ns
        The time that it took or kept a device waiting, as far as known. Findings are sorted by it.
    """

    rule: str
    title: str
    text: str
    remedy: str
    line: str = ""
    cost_ns: int = 0

    def __str__(self) -> str:
        where = place(self.line)
        at = f" ({where.label}: {where.text})" if where.text else f" ({where.label})" if where.label else ""
        return "\n".join([f"{self.title}{at}.", *_wrapped(self.text), *_wrapped(self.remedy)])


def _together(text: str) -> str:
    """The text, in which each number stays with its unit."""
    return re.sub(r"(\d) (\S)", "\\1\u00a0\\2", text)


def _wrapped(text: str) -> list[str]:
    """The lines of a text, short enough for a notebook, which would break longer ones within words."""
    indent = "  "
    lines = textwrap.wrap(_together(text), WIDTH, initial_indent=indent, subsequent_indent=indent,
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [line.replace("\u00a0", " ") for line in lines]


class Advice:
    """The findings about a recording, the most expensive first: a sequence that shows itself.

    Parameters
    ----------
    findings
        In any order.
    unread
        A sentence about records that were dropped and not looked at; else empty.
    """

    def __init__(self, findings: Sequence[Finding], unread: str = "") -> None:
        self.findings = sorted(findings, key=lambda one: (-one.cost_ns, one.rule, one.line))
        self.unread = unread

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, place: int) -> Finding:
        return self.findings[place]

    @property
    def rules(self) -> set[str]:
        """The names of the rules that found something."""
        return {finding.rule for finding in self.findings}

    def __repr__(self) -> str:
        parts = [str(finding) for finding in self.findings] or ["No known problem was found."]
        return "\n".join([*parts, *([self.unread] if self.unread else [])])

    def _repr_html_(self) -> str:
        if not self.findings:
            return f"<p>{html.escape(repr(self))}</p>"
        cards = "".join(_card(finding) for finding in self.findings)
        note = f"<p><small>{html.escape(self.unread)}</small></p>" if self.unread else ""
        return f'<div style="max-width: 52em">{cards}{note}</div>'


def _card(finding: Finding) -> str:
    where = place(finding.line)
    cost = f' <span style="opacity: 0.7">{duration(finding.cost_ns)}</span>' if finding.cost_ns else ""
    code = ""
    if where.label:
        source = f"<code>{html.escape(where.text)}</code>" if where.text else ""
        code = f'<div style="margin: 2px 0"><small>{html.escape(where.label)}</small> {source}</div>'
    return (
        '<section style="border-left: 3px solid #4c78a8; padding: 2px 0 2px 12px; margin: 10px 0">'
        f"<strong>{html.escape(finding.title)}</strong>{cost}{code}"
        f"<div>{_marked(finding.text)}</div>"
        f'<div style="opacity: 0.85">{_marked(finding.remedy)}</div></section>'
    )


def _marked(text: str) -> str:
    """The text as HTML, with names in backquotes set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(_together(text)))
