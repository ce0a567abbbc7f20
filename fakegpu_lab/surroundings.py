"""Where this Python runs: within IPython or not, and for whom the simulation's own frames are shown."""

from __future__ import annotations

import os
import sys
from typing import Any

DEBUG = os.environ.get("FAKEGPU_LAB_DEBUG") == "1"
"""Whether tracebacks show the frames of this package, too."""


def shell() -> Any:
    """IPython's shell, of a notebook or of its prompt; None without one. Imports nothing."""
    ipython: Any = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
