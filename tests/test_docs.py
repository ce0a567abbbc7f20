"""What the documents show is true: every block of Python in docs/ runs, one after the other."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import fakegpu_lab

DOCUMENTS = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))


def blocks(text: str) -> list[str]:
    return [code for kind, code in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL) if kind == "python"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_of_the_documents_runs(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, code in enumerate(blocks(document.read_text(encoding="utf-8"))):
            name = f"<{document.name} {number}>"
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            exec(compile(code, name, "exec"), names)
    finally:
        fakegpu_lab.disable()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_the_documents_lead_somewhere(document: Path) -> None:
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#[^)]+)?\)", document.read_text(encoding="utf-8")):
        target = (document.parent / link) if link else document
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
