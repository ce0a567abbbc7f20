"""The figures of docs/figures.md, drawn by the programs in docs/.

``python -m website.programs FILE`` runs the programs and writes the figures; it runs in a process of its own, because a
process has one set of simulated GPUs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from website import figures

if TYPE_CHECKING:
    from collections.abc import Iterator


def figures_of_programs() -> Iterator[tuple[str, str]]:
    """Name and HTML of each figure."""
    import memory
    import ranks
    import timeline

    import fakegpu_lab as lab

    lab.enable("a100", compute="meta")  # without values, which only gpt_step reads: the same time passes
    timeline.copies(pinned=False)  # the first product takes cuBLAS's workspace
    slow, fast = timeline.copies(pinned=False), timeline.copies(pinned=True)
    yield "copies", figures.recorded_html(slow.figure(end=slow.elapsed))
    yield "copies-pinned", figures.recorded_html(fast.figure(end=slow.elapsed))
    lab.disable()
    lab.enable("a100")
    yield "gpt-step", figures.recorded_html(timeline.gpt_step().figure())
    lab.disable()
    lab.enable("a100:4", compute="meta")
    yield "ddp-step", figures.recorded_html(lab.run_ranks(ranks.program, 4)[0].figure())
    lab.disable()
    lab.enable("a100", compute="meta")
    plain, frugal = memory.step(checkpointed=False), memory.step(checkpointed=True)
    labels = ("plain", "checkpointed")
    yield "memory", figures.recorded_html(plain.memory_figure(against=frugal, labels=labels))
    lab.disable()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(dict(figures_of_programs())), encoding="utf-8")
