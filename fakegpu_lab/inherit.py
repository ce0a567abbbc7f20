"""How child processes get the parent's machine: through one environment variable.

`torch` imports this module at the end of its own import (the ``torch.backends`` entry point), in every process of an
environment where the package is installed. Without the variable it does nothing, and imports nothing.
"""

from __future__ import annotations

import itertools
import json
import os
from importlib import import_module
from pathlib import Path

VARIABLE = "FAKEGPU_LAB_MACHINE"
WORLD = "FAKEGPU_LAB_WORLD"
"""``size:rank:ranks a node`` of the world that is implied for this process (``fakegpu-lab plan``)."""
REPORTS = "FAKEGPU_LAB_REPORTS"
"""The process id of a ``fakegpu-lab run``, and the folder where those it started leave what they did (`processes`)."""
IDENTITY = "FAKEGPU_LAB_ID"
"""Names the machine: the same in all processes of a notebook or a run, and in those that they start."""
_numbers = itertools.count(1)
_inheriting = False


def autoload() -> None:
    """Enable the machine that the parent process left in the environment, if any."""
    global _inheriting
    if text := os.environ.get(VARIABLE):
        session = import_module("fakegpu_lab.session")  # below the session when it writes, above it when it reads
        wanted = json.loads(text)
        _inheriting = True
        try:
            session.enable(wanted["spec"], memory=wanted["memory"], compute=wanted["compute"])
        finally:
            _inheriting = False
        if world := os.environ.get(WORLD):
            from fakegpu_lab import plan
            from fakegpu_lab.ranks import implied

            implied.enter(plan.checked(*map(int, world.split(":"))))
        parent, _, folder = os.environ.get(REPORTS, "").partition(":")
        if folder and parent != str(os.getpid()):
            from fakegpu_lab import processes

            processes.report_to(folder, session.latest)


def leave(spec: str, memory: int | str | None, compute: str) -> None:
    """Let child processes started from now on find this machine, and nvidia-smi."""
    from fakegpu_lab.nvml import path

    os.environ[VARIABLE] = json.dumps({"spec": _anywhere(spec), "memory": memory, "compute": compute})
    if not (_inheriting and IDENTITY in os.environ):
        os.environ[IDENTITY] = f"{os.getpid()}-{next(_numbers)}"
    path.enter()


def forget() -> None:
    """Let child processes started from now on see no machine."""
    os.environ.pop(IDENTITY, None)
    if os.environ.pop(VARIABLE, None) is not None:
        from fakegpu_lab.nvml import path

        path.leave()


def _anywhere(spec: str) -> str:
    """The spec with its paths made absolute: a child may start in another folder."""
    from fakegpu_lab.hardware.catalogue import is_path

    parts = [part.strip().strip("\"'") for part in spec.split(",")]
    return ",".join(str(Path(part).expanduser().absolute()) if is_path(part) else part for part in parts)
