"""What nbval skips: the cells of a lesson that needs a library which is not installed. `make kernels` runs them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from fakegpu_lab.course.lessons import extras, lesson

if TYPE_CHECKING:
    from pathlib import Path


@cache
def _missing(folder: Path) -> str:
    absent = extras.missing(lesson.load(folder).all_needs) if (folder / lesson.FILE).is_file() else []
    return extras.sentence(absent) if absent else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip them, and say what is missing."""
    for item in items:
        reason = _missing(item.path.parent)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
