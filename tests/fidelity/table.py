"""The fidelity table: each fact with what happens here, by subject, for a terminal and for docs/fidelity.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.fidelity import digits, first_uses, measured, memory, messages

if TYPE_CHECKING:
    from tests.fidelity.fact import Fact, Value

PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


@dataclass(frozen=True)
class Section:
    """One subject.

    Attributes
    ----------
    to_the
        How exact it is, where it is exact.
    slow
        That it takes a minute: it is left out unless it is asked for.
    """

    title: str
    facts: list[Fact]
    to_the: str = ""
    slow: bool = False

    @property
    def exact(self) -> bool:
        """Whether it is held word for word, to the digit and to the byte."""
        return bool(self.to_the)

    @property
    def headings(self) -> tuple[str, ...]:
        """Those of its columns."""
        return ("What", "Card", "Real", "Ours") + (() if self.exact else ("Ratio",)) + ("Source",)


SECTIONS = [
    Section("Messages", messages.FACTS, "word for word"),
    Section("Memory", memory.FACTS, "to the last digit"),
    Section("Random numbers", digits.FACTS, "to the last digit"),
    Section("Kernels", measured.KERNELS),
    Section("First uses", first_uses.FACTS),
    Section("Transfers", measured.TRANSFERS),
    Section("Collectives", measured.COLLECTIVES),
    Section("Training steps", measured.TRAINING, slow=True),
    Section("Training steps of 2020", measured.OLDER, slow=True),
]


def shown(value: Value, unit: str, *, exact: bool) -> str:
    """As people read it: of many numbers, the first."""
    if isinstance(value, str):
        words = value.split()
        many = len(words) > 12 and all(re.fullmatch(r"-?\d+\.\d+", word) for word in words)
        return f"{' '.join(words[:6])} … ({len(words)} numbers)" if many else value
    return f"{value:,} {unit}" if exact else f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.4g} {unit}"


def cells(fact: Fact, ours: Value) -> tuple[str, ...]:
    """A row, for a section's headings."""
    exact = not fact.within
    real = shown(fact.real, fact.unit, exact=exact)
    here = "the same" if exact and ours == fact.real else shown(ours, fact.unit, exact=exact)
    return fact.what, fact.card, real, here, *(() if exact else (f"{float(ours) / float(fact.real):.2f}",)), fact.source


def line(row: tuple[str, ...]) -> str:
    """That row in Markdown."""
    text = " | ".join(cell.replace("|", r"\|").replace("`", "'").replace("**", r"\*\*") for cell in row)
    text = re.sub(r"https://github\.com/(\S+?)/(?:issues|pull)/(\d+)", r"[\1#\2](\g<0>)", text)
    text = re.sub(r"(?<!\()https://([\w.]+)(?:/[^\s,]*)?", r"[\1](\g<0>)", text)
    return f"| {text} |"


def rule(section: Section) -> str:
    """The line below a Markdown table's headings."""
    return "|" + "|".join(" ---: " if name == "Ratio" else " --- " for name in section.headings) + "|"


def rows(page: str, section: Section) -> list[list[str]]:
    """The rows of a section as they stand on the page."""
    part = page.partition(f"\n## {section.title}\n")[2].partition("\n## ")[0]
    lines = [text for text in part.splitlines() if text.startswith("|")][2:]
    return [re.split(r"(?<!\\)\|", text.strip("|")) for text in lines]


def percent(error: float) -> str:
    return f"{max(1, round(100 * error))}%"


def summary(page: str) -> list[str]:
    """What the page says in short, for the guide: a line of Markdown for each section."""
    lines = []
    for section in SECTIONS:
        found = [[cell.strip() for cell in row] for row in rows(page, section)]
        if section.exact:
            outcome = f"{sum(row[3] == 'the same' for row in found)} the same, {section.to_the}"
        else:
            errors = [abs(float(row[4]) - 1) for row in found]
            outcome = f"within {percent(max(errors))}, half of them within {percent(median(errors))}"
        lines.append(f"| {section.title} | {len(found)} | {outcome} |")
    return lines


def with_part(begin: str, end: str, text: str) -> str:
    """The page with another text between two marks."""
    before, begin, rest = PAGE.read_text("utf-8").partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def page_with(tables: str) -> str:
    """The page with other tables between its marks."""
    return with_part("<!-- python -m tests.fidelity --all --write -->\n", "\n<!-- end -->\n", tables + "\n")
