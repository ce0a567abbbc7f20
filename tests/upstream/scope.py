"""The list of what is out of scope, `scope.yaml`, and which tests it names."""

from __future__ import annotations

import functools
import re
from fnmatch import translate
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("scope.yaml")


@functools.cache
def entries() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Each reason with the pattern of the tests that it excludes."""
    listed = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return tuple(
        (entry["reason"], re.compile("|".join(translate(pattern) for pattern in entry["tests"]))) for entry in listed
    )


def out_of_scope(test: str) -> str | None:
    """Why ``file.py::Class::test`` is out of scope; None if it is in scope."""
    for reason, pattern in entries():
        if pattern.match(test):
            return reason
    return None
