"""The list of what is out of scope, `scope.yaml`, and of what fails because a tree is older, `trees.yaml`."""

from __future__ import annotations

import functools
import re
from fnmatch import translate
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
Entries = tuple[tuple[str, re.Pattern[str]], ...]


def out_of_scope(test: str) -> str | None:
    """Why ``file.py::Class::test`` is out of scope; None if it is in scope."""
    return _reason(test, _entries("scope.yaml"))


def needs_older_pytorch(test: str, tree: str) -> str | None:
    """Why a test that fails does so because the tree has this version, and the installed PyTorch a newer one."""
    version = ".".join(tree.split(".")[:2])
    return _reason(test, _entries("trees.yaml", version))


@functools.cache
def _entries(name: str, part: str | None = None) -> Entries:
    listed: Any = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    if part is not None:
        listed = listed.get(part, [])
    return tuple(
        (entry["reason"], re.compile("|".join(translate(pattern) for pattern in entry["tests"]))) for entry in listed
    )


def _reason(test: str, entries: Entries) -> str | None:
    return next((reason for reason, pattern in entries if pattern.match(test)), None)
