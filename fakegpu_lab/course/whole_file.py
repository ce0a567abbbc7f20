"""Writes a file whole or not at all: a reader, a full disk or an interruption never finds half of one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def writing(path: Path, *, newline: str | None = None) -> Iterator[TextIO]:
    """Open a text file for writing beside `path`; it replaces `path` at the end, and is deleted after an error."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("w", encoding="utf-8", newline=newline) as file:
            yield file
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
