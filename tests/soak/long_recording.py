"""A long recording: its memory, and how long its summary, figures and file take: ``python recording.py OPS``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from steps import resident

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable

OF_AN_OP = 2048
"""Bytes of the process that a recorded op may take, with all its views."""
LARGEST = 64 << 20
"""Bytes that a figure may have: a browser must show it."""


def main(count: int) -> None:
    lab.enable("a100")
    x, y = torch.ones(64, device="cuda"), torch.ones(64, device="cuda")
    with lab.record() as trace:
        x + y
    before = resident()
    began = time.process_time()
    with lab.record() as trace:
        for _ in range(count // 2):
            x.add_(y)
            x.mul_(0.5)
    took = (time.process_time() - began) / count * 1e6
    held = (resident() - before) / count
    print(f"{count} ops, {took:.1f} µs each; {held:.0f} bytes each; kept {len(trace.kernels)}", flush=True)
    wrong = held > OF_AN_OP or sum(total.count for total in trace.totals.values()) != count

    def timed(name: str, draw: Callable[[], Any]) -> int:
        began = time.process_time()
        size = draw()
        print(f"{name}: {time.process_time() - began:.1f} s of the processor, {size / 2**20:.1f} MiB", flush=True)
        return int(size)

    timed("summary", lambda: len(str(trace.summary())))
    timed("by_line", lambda: len(str(trace.by_line())))
    wrong |= timed("figure", lambda: len(trace.figure().to_json())) > LARGEST
    wrong |= timed("memory figure", lambda: len(trace.memory_figure().to_json())) > LARGEST
    with tempfile.TemporaryDirectory() as folder:
        timed("to_chrome_trace", lambda: trace.to_chrome_trace(Path(folder, "trace.json")).stat().st_size)
    grown = resident() - before
    print(f"{grown / 2**20:.0f} MiB with all of it")
    sys.exit(wrong)


if __name__ == "__main__":
    main(int(sys.argv[1]))
