"""Writes not-simulated.md, the page of what is not simulated, from the table of what is refused."""

from __future__ import annotations

import re
from pathlib import Path

from fakegpu_lab.driver.base.not_simulated import TABLE

PAGE = Path(__file__).parent / "not-simulated.md"

HEAD = """# What is not simulated

The simulation covers as much of PyTorch's CUDA as the package needs: for the lessons, the panel, the checks,
unmodified programs, and comparisons with published figures. It refuses the rest: the call raises a
`NotSimulatedError`, which is a `FakeGpuError` and a `NotImplementedError`, with a sentence from this page. `python
docs/not_simulated.py` writes the page from the table of what is refused.

| Not simulated | Instead |
|---|---|
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"| {as_code(row.what.rstrip(','))} | {as_code(row.instead)} |\n" for row in TABLE.values())


def as_code(text: str) -> str:
    """A sentence with names of torch, and names with underscores, as code."""
    marked = r"`[^`]*`"
    of_torch = r"\b(?:torch|nn|numba|fakegpu_lab)(?:\.\w+)+(?:\((?:[^()]|\([^()]*\))*\))?|\bcuda[A-Z]\w+"
    with_underscores = r"\b(?:\w+\.)?\w*[a-z]_\w*(?:\(\))?(?:\.\w+\([^)]*\))?"
    return re.sub(f"{marked}|{of_torch}|{with_underscores}", lambda found: f"`{found[0].strip('`')}`", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
