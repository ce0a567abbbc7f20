"""What a CUDA machine does that the simulation must reproduce: each module records one section, with `record`.

Start with `allocation`; what all sections share is in `common`. Plain torch (2.4 or newer), the standard library, and
imports relative to this folder: `benchmarks/real_gpu.py`, which has more sections, also runs with a copy of this folder
beside it, where fakegpu_lab is not installed.
"""

from __future__ import annotations

import gc
import importlib
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

SECTIONS = {name: f"{__name__}.{name}" for name in ("environment", "allocation", "messages")}
"""The modules of sections, in the order in which they are recorded."""
VERSION = 1


def record(
    sections: Collection[str],
    quick: bool,
    done: Callable[[str, float], object],
    modules: Mapping[str, str] = SECTIONS,
) -> dict[str, Any]:
    """Record sections, in the order of `modules`.

    An item that fails records its error, and a section that fails its traceback; the rest goes on.

    Parameters
    ----------
    quick
        Small sizes and one repetition.
    done
        Called after each section with its name and the seconds that it took.
    modules
        The module of each section that there is.
    """
    report: dict[str, Any] = {"version": VERSION, "quick": quick, "sections": {}, "errors": {}, "seconds": {}}
    warnings.simplefilter("ignore")
    gc.freeze()  # what is loaded now need not be searched at each of the many collections
    for name, module in modules.items():
        if name not in sections:
            continue
        start = time.perf_counter()
        try:
            report["sections"][name] = importlib.import_module(module).record(quick)
        except Exception:
            report["errors"][name] = traceback.format_exc()
        report["seconds"][name] = round(time.perf_counter() - start, 3)
        done(name, report["seconds"][name])
    return report
