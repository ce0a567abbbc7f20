"""The directive `recording`: a figure of docs/figures.md, from a program of docs/ that is run when the site is built.

``python -m website.recordings FILE`` runs the programs and writes the figures; it runs in a process of its own,
because a process has one set of simulated GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.parsers.rst import Directive

from website import executed, figures

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).resolve().parents[1]
PROGRAMS = tuple(DOCS / f"{name}.py" for name in ("memory", "ranks", "timeline"))


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


def made() -> dict[str, str]:
    """HTML of each figure by its name, from the cache if nothing has changed."""
    cached = executed.CACHE / f"figures-{executed.digest(*PROGRAMS, Path(__file__), Path(figures.__file__))}.json"
    if not cached.is_file():
        cached.parent.mkdir(exist_ok=True)
        paths = os.pathsep.join([str(DOCS), str(executed.PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "website.recordings", str(file)]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True)
            for old in executed.CACHE.glob("figures-*.json"):
                old.unlink()
            cached.write_bytes(file.read_bytes())
    found: dict[str, str] = json.loads(cached.read_text(encoding="utf-8"))
    return found


class Recording(Directive):
    """```{recording} gpt-step```: one of the figures."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Put the figure on the page, in every build: it may be drawn differently."""
        env = self.state.document.settings.env
        env.note_reread()
        if not env.config.fakegpu_lab_execute:
            return []
        return [nodes.raw("", made()[self.arguments[0]], format="html")]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(dict(figures_of_programs())), encoding="utf-8")
