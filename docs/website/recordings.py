"""The directive `recording`: a figure of docs/figures.md, drawn by a program when the site is built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive

from website import executed, figures, programs

DOCS = Path(__file__).resolve().parents[1]
MADE_OF = (
    *(DOCS / f"{name}.py" for name in ("memory", "ranks", "timeline")),
    *(Path(str(one.__file__)) for one in (programs, figures)),
)


def made() -> dict[str, str]:
    """HTML of each figure by its name, from the cache if nothing has changed."""
    cached = executed.CACHE / f"figures-{executed.digest(*MADE_OF)}.json"
    if not cached.is_file():
        cached.parent.mkdir(exist_ok=True)
        paths = os.pathsep.join([str(DOCS), str(executed.PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "website.programs", str(file)]
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
