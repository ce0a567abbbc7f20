"""Where the user's code runs: IPython's shell if there is one, and the environment variables of this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
"""The folder of this package: code in it is ours, not the user's."""

DEBUG = os.environ.get("FAKEGPU_LAB_DEBUG") == "1"
"""Whether tracebacks also show the frames of this package."""

MACHINE = "FAKEGPU_LAB_MACHINE"
"""Environment variable with the machine's specification, as JSON; `fakegpu_lab.processes.inheritance` writes it."""
IDENTITY = "FAKEGPU_LAB_ID"
"""Environment variable with the machine's name: the same in all processes of a notebook or a run."""


def shell() -> Any:
    """Return IPython's shell, of a notebook or of its prompt; None without IPython, which is not imported."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
