"""What differs between two recordings."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST = 12
"""Lines printed of one kind in one case."""


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The cases that are not the same in both, each with what is gone (-) and what has come (+)."""
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in new or name not in old:
            yield name, ["only in the new one" if name in new else "only in the old one"]
        elif old[name] != new[name]:
            yield name, [line for key in {**old[name], **new[name]} for line in of_kind(key, old[name], new[name])]


def of_kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, after = lines_of(old.get(key)), lines_of(new.get(key))
    changed = [
        f"{key}: {line}"
        for line in difflib.unified_diff(before, after, lineterm="", n=0)
        if line[:2] not in ("--", "++", "@@")
    ]
    return changed[:MOST] + [f"{key}: … {len(changed) - MOST} more"] * (len(changed) > MOST)


def lines_of(value: Any) -> list[str]:
    """Something of a recording as lines."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [f"{key} {line}" for key, inner in value.items() for line in lines_of(inner)]
    if isinstance(value, list):
        return [str(item) for item in value]
    return [str(value)]
