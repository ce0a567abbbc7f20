"""How child processes get the parent's machine: through an environment variable, which `fakegpu_lab.autoload` reads."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.user_code.environment import IDENTITY
from fakegpu_lab.user_code.environment import MACHINE as VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["IDENTITY", "REPORTS", "VARIABLE", "WORLD", "forget", "inheriting", "leave"]

WORLD = "FAKEGPU_LAB_WORLD"
"""``size:rank:ranks per node`` of the world implied for this process by ``fakegpu-lab plan``."""
REPORTS = "FAKEGPU_LAB_REPORTS"
"""The process id of a ``fakegpu-lab run``, and the folder for its children's reports (`run_reports`)."""
_numbers = itertools.count(1)
_inheriting = False


@contextlib.contextmanager
def inheriting() -> Iterator[None]:
    """Inside the ``with`` block, an enabled machine is the parent's, and keeps the parent's name."""
    global _inheriting
    _inheriting = True
    try:
        yield
    finally:
        _inheriting = False


def leave(spec: str, memory: int | str | None, compute: str, clock: str, host: str | None = None) -> None:
    """Let child processes started from now on inherit this machine, and find nvidia-smi."""
    from fakegpu_lab.nvml import program_path

    wanted = {"spec": _absolute(spec), "memory": memory, "compute": compute, "clock": clock}
    if host is not None:
        wanted["host"] = _absolute(host)
    os.environ[VARIABLE] = json.dumps(wanted)
    if not (_inheriting and IDENTITY in os.environ):
        os.environ[IDENTITY] = f"{os.getpid()}-{next(_numbers)}"
    program_path.enter()


def forget() -> None:
    """Let child processes started from now on inherit no machine."""
    os.environ.pop(IDENTITY, None)
    if os.environ.pop(VARIABLE, None) is not None:
        from fakegpu_lab.nvml import program_path

        program_path.leave()


def _absolute(spec: str) -> str:
    """The specification with absolute paths: a child may start in another folder."""
    from fakegpu_lab.hardware.catalogue.lookup import is_path

    parts = [part.strip().strip("\"'") for part in spec.split(",")]
    return ",".join(str(Path(part).expanduser().absolute()) if is_path(part) else part for part in parts)
