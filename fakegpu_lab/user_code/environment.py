"""Where the user's code runs: whether IPython is there, whether to show our own frames, which variables we read."""

from __future__ import annotations

import os
import sys
from typing import Any

DEBUG = os.environ.get("FAKEGPU_LAB_DEBUG") == "1"
"""Whether tracebacks show the frames of this package, too."""

MACHINE = "FAKEGPU_LAB_MACHINE"
"""Environment variable with the spec of the machine, as JSON; `fakegpu_lab.processes.inheritance` writes it."""
IDENTITY = "FAKEGPU_LAB_ID"
"""Environment variable that names the machine: the same in all processes of a notebook or a run."""


def shell() -> Any:
    """IPython's shell, of a notebook or of its prompt; None without one. Imports nothing."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
