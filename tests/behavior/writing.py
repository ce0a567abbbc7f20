"""The file: JSON with a line for each case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded.json"
"""What the test suite compares with."""


def write(file: str, only: str, parts: str) -> None:
    """Record, and write."""
    from tests.behavior.recorder import recorded

    Path(file).write_text(text(recorded(parts.split(","), only)))


def text(recording: dict[str, Any]) -> str:
    """A line for each case."""
    lines = (f"{json.dumps(name)}: {json.dumps(found, ensure_ascii=False)}" for name, found in recording.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"
