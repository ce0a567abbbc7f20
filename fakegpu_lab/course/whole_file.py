"""Writes a file whole or not at all: a reader, a full disk or an interruption never finds half of one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TextIO, TypeVar

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import TypeAdapter

T = TypeVar("T")


def kept(path: Path, adapter: TypeAdapter[T]) -> T:
    """What a YAML file has that is kept for later; nothing if there is none.

    Raises
    ------
    FakeGpuError
        The file is not as it was written.
    """
    import yaml
    from pydantic import ValidationError

    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return adapter.validate_python(yaml.safe_load(text) or {})
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise FakeGpuError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from None


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
