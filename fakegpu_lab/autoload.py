"""Enables the parent's machine in a child process.

`torch` imports this module at the end of its own import (the ``torch.backends`` entry point), in every process of an
environment that has the package. Without the environment variable it does nothing, and imports next to nothing.
"""

from __future__ import annotations

import json
import os

from fakegpu_lab.processes import inheritance


def autoload() -> None:
    """Enable the machine that the parent process left in the environment, if any."""
    if text := os.environ.get(inheritance.VARIABLE):
        from fakegpu_lab import session

        wanted = json.loads(text)
        with inheritance.inheriting():
            session.enable(**wanted)
        if world := os.environ.get(inheritance.WORLD):
            from fakegpu_lab.ranks.planning import figures, implied_ranks

            implied_ranks.enter(figures.checked(*map(int, world.split(":"))))
        parent, _, folder = os.environ.get(inheritance.REPORTS, "").partition(":")
        if folder and parent != str(os.getpid()):
            from fakegpu_lab.processes import run_reports

            run_reports.report_to(folder, session.latest)
