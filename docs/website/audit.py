"""Searches a website for solutions: ``python -m website.audit docs/_build``."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import nbformat

from website import executed, lessons


def text_of(page: str) -> str:
    """What a page holds: also what scripts draw, without the tags that color code, and without escapes."""
    plain = html.unescape(re.sub(r"</?(?:span|code|pre|div|br)\b[^>]*>", "", page))
    return plain.replace('\\"', '"').replace("\\u003c", "<").replace("\\u003e", ">").replace("\\n", "\n")


def found(site: Path, sources: list[Path]) -> list[str]:
    """Each line of a solution that a page of its lesson shows."""
    shown = []
    for source in sources:
        secrets = executed.solution_lines(nbformat.read(source, as_version=4))
        for path in sorted(site.rglob(f"*{source.stem}*")):
            if path.is_file():
                text = text_of(path.read_text(encoding="utf-8", errors="replace"))
                shown += [f"{path.relative_to(site)}: {line}" for line in secrets if line in text]
    return shown


if __name__ == "__main__":
    lines = found(Path(sys.argv[1]), lessons.sources())
    if lines:
        raise SystemExit("\n".join(["The website shows lines of solutions:", *lines]))
