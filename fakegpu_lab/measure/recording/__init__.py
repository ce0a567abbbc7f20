"""What a CUDA machine does that the simulation must reproduce: each module records one section, with `record`.

Start with `allocation`; what all sections share is in `common`. Plain torch (2.4 or newer), the standard library, and
imports relative to this folder: `benchmarks/real_gpu.py` also runs with a copy of this folder beside it, where
fakegpu_lab is not installed.
"""

from __future__ import annotations

import gc
import importlib
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

SECTIONS = (
    "environment",  # first: it measures the context
    "workspaces",  # before anything else has used cuBLAS or cuDNN
    "allocation",
    "workloads",
    "saved",
    "casts",
    "numbers",
    "times",
    "messages",  # last: its asserts run in processes beside this one
)
"""All sections, in the order in which they are recorded."""
VERSION = 1


def record(sections: Collection[str], quick: bool, done: Callable[[str, float], object]) -> dict[str, Any]:
    """Record sections, in the order of `SECTIONS`.

    An item that fails records its error, and a section that fails its traceback; the rest goes on.

    Parameters
    ----------
    quick
        Small sizes and one repetition.
    done
        Called after each section with its name and the seconds that it took.
    """
    report: dict[str, Any] = {"version": VERSION, "quick": quick, "sections": {}, "errors": {}, "seconds": {}}
    warnings.simplefilter("ignore")
    gc.freeze()  # what is loaded now need not be searched at each of the many collections
    for name in SECTIONS:
        if name not in sections:
            continue
        start = time.perf_counter()
        try:
            report["sections"][name] = importlib.import_module(f"{__name__}.{name}").record(quick)
        except Exception:
            report["errors"][name] = traceback.format_exc()
        report["seconds"][name] = round(time.perf_counter() - start, 3)
        done(name, report["seconds"][name])
    return report
