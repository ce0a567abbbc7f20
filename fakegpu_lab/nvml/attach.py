"""Attaching the simulated GPUs to nvidia-ml-py: its functions run unmodified, on a library written in Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml.c_library.library import Library

if TYPE_CHECKING:
    from collections.abc import Callable


def attach(module: Any = None) -> Callable[[], None]:
    """Give `pynvml` the simulated library in place of NVIDIA's; return the function that undoes it.

    nvidia-ml-py loads the library at its first use (`_LoadNvmlLibrary`) and caches the functions found there
    (`_nvmlGetFunctionPointer_cache`); gpustat and nvitop patch only the layer above that.
    """
    pynvml: Any = sys.modules.get("pynvml", module)  # `module` may be the one that `injected` loaded
    pynvml = getattr(pynvml, "nvml", pynvml) if not hasattr(pynvml, "nvmlLib") else pynvml
    if not hasattr(pynvml, "_nvmlGetFunctionPointer_cache"):
        return lambda: None
    before, count = pynvml.nvmlLib, pynvml._nvmlLib_refcount
    pynvml.nvmlLib = Library(pynvml)
    pynvml._nvmlGetFunctionPointer_cache.clear()

    def detach() -> None:
        pynvml.nvmlLib, pynvml._nvmlLib_refcount = before, count
        pynvml._nvmlGetFunctionPointer_cache.clear()

    return detach
