"""Parsing the line of a magic, such as ``a100:2 --memory 2GiB``."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic_arguments import parse_argstring


def parse(magic: Any, line: str) -> Any:
    """The arguments in a magic's line, as the decorators of `magic` declare them.

    Raises
    ------
    UsageError
        The line has other arguments than the magic takes, or it cannot be split into arguments.
    """
    try:
        return parse_argstring(magic, line)  # type: ignore[no-untyped-call]
    except ValueError:  # shlex: "No closing quotation"
        raise UsageError(
            f"A quotation mark is opened and not closed in {line.strip()}: close it, or leave it out."
        ) from None
