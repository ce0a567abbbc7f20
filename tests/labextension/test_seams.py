"""What the browser's side writes once more, because it cannot import it: the same as in Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.course.checks import record
from fakegpu_lab.course.lessons import progress
from fakegpu_lab.formatting import units
from fakegpu_lab.notebook import gpu_magics
from fakegpu_lab.notebook.telemetry import messages, publisher, source
from fakegpu_lab.sidebar import answers

ROOT = Path(__file__).parents[2]
SIDEBAR = ROOT / "labextension" / "src"


@pytest.mark.parametrize(
    ("path", "name", "value"),
    [
        (SIDEBAR / "kernel" / "link.ts", "TELEMETRY", publisher.TELEMETRY),
        (SIDEBAR / "kernel" / "link.ts", "CONTROL", publisher.CONTROL),
        (SIDEBAR / "kernel" / "ask.ts", "VERSION", answers.VERSION),
        (SIDEBAR / "telemetry" / "schema.ts", "VERSION", messages.VERSION),
        (SIDEBAR / "telemetry" / "model.ts", "STEPS", source.STEPS),
        (SIDEBAR / "lessons" / "outline.ts", "CHECK", record.MIME),
        (SIDEBAR / "lessons" / "library.ts", "PROGRESS", progress.FILE),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_constants(path: Path, name: str, value: object) -> None:
    (told,) = re.findall(rf"const {name} = '?([^';]+)'?;", path.read_text(encoding="utf-8"))
    assert told == str(value)


def test_the_words_after_fakegpu_that_enable_nothing() -> None:
    text = (SIDEBAR / "hardware" / "cell.ts").read_text(encoding="utf-8")
    (told,) = re.findall(r"%fakegpu\\s\+\(([a-z|]+)\)", text)
    assert sorted(told.split("|")) == sorted(gpu_magics.WORDS)


def test_the_sidebar_offers_cards_with_the_memory_that_torch_says() -> None:
    told = json.loads(answers.answer(json.dumps({"ask": "profiles"})))["told"]
    sizes = {profile["id"]: profile["total"] for profile in told}
    lab.enable("a100:2,t4")
    try:
        a100, _, t4 = (torch.cuda.get_device_properties(device).total_memory for device in range(3))
        shown = [device.memory.total for device in lab.snapshot().devices]
    finally:
        lab.disable()
    assert (sizes["a100"], sizes["t4"]) == (a100, t4)
    assert shown == [a100, a100, t4]
    assert units.capacity(a100) == "79.25 GiB"
