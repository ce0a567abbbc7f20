"""The numba programs of docs/kernels.md run."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

import fakegpu_lab as lab

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


def test_the_programs_of_the_page_run():
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, code in enumerate(re.findall(r"```python3\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)):
            name = f"<kernels.md, numba {number}>"
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            exec(compile(code, name, "exec"), names)
    finally:
        lab.disable()
    assert "transpose" in names
