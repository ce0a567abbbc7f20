"""The programs of docs/kernels.md run: those in Triton are marked ``py``, those in numba ``python3``."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab.driver.compile.triton_version import OLDEST

PAGE = Path(__file__).parents[2] / "docs" / "kernels.md"


@pytest.mark.parametrize(
    ("mark", "libraries", "last"), [("py", ["triton"], "by_columns"), ("python3", ["numba", "greenlet"], "transpose")]
)
def test_the_programs_of_the_page_run(mark: str, libraries: list[str], last: str) -> None:
    for library in libraries:
        needed = ".".join(map(str, OLDEST)) if library == "triton" else None
        pytest.importorskip(library, needed, reason=f"the extra `{libraries[0]}` is not installed, or too old")
    names: dict[str, Any] = {"__name__": "__main__"}
    programs = re.findall(rf"```{mark}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    try:
        for number, code in enumerate(programs):
            name = f"<kernels.md, {mark} {number}>"
            linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
            exec(compile(code, name, "exec"), names)
    finally:
        lab.disable()
    assert last in names
