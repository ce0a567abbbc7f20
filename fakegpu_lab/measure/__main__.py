"""``python -m fakegpu_lab.measure FILE SIDES PART…``: measures parts of a card, or records sections, as JSON.

The comparison runs it under ``fakegpu-lab run``, to measure the simulation of a card in a process of its own.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fakegpu_lab.measure import figures, recording

if __name__ == "__main__":
    file, sides, *parts = sys.argv[1:]
    sections = [part for part in parts if part in recording.SECTIONS]
    measured = tuple(part for part in parts if part not in recording.SECTIONS)
    found = figures.measure(lambda line: None, measured, json.loads(sides)) if measured else None
    report = recording.record(sections, True, lambda name, seconds: None)
    text = json.dumps({"figures": found.model_dump() if found else None, "recording": report})
    Path(file).write_text(text, encoding="utf-8")
