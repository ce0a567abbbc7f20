"""Enables the parent's machine in a child process, and the one that `session.enable_on_import` left in this process.

`torch` imports this module at the end of its own import (the ``torch.backends`` entry point), in every process of an
environment that has the package. Without the environment variable it does nothing, and imports next to nothing.
"""

from __future__ import annotations

import json
import os
import warnings

from fakegpu_lab.processes import inheritance


def autoload() -> None:
    """Enable the machine that the parent process left in the environment, if any.

    What cannot be understood, or names a profile that was deleted, must not keep the process from importing torch: it
    has no simulated GPUs then, and warns of that.
    """
    if text := os.environ.get(inheritance.VARIABLE):
        try:
            _inherit(text)
        except Exception as error:  # torch would turn any into an error of its import
            from fakegpu_lab import session

            session.disable()
            warnings.warn(
                f"This process has no simulated GPUs, because those of its parent cannot be enabled here: {error}",
                stacklevel=2,
            )


def _inherit(text: str) -> None:
    from fakegpu_lab import session

    try:
        wanted = dict(json.loads(text))
        world = tuple(map(int, filter(None, os.environ.get(inheritance.WORLD, "").split(":"))))
    except (TypeError, ValueError):
        raise ValueError(f"{inheritance.VARIABLE} or {inheritance.WORLD} is malformed.") from None
    with inheritance.inheriting():
        session.enable(**wanted)
    if world:
        from fakegpu_lab.ranks.planning import figures, implied_ranks

        implied_ranks.enter(figures.checked(*world))
    parent, _, folder = os.environ.get(inheritance.REPORTS, "").partition(":")
    if folder and parent != str(os.getpid()):
        from fakegpu_lab.processes import run_reports

        run_reports.report_to(folder, session.latest)
