"""Lets Triton see the simulated devices, as soon as the program imports it; nothing here imports it."""

from __future__ import annotations

import re
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.module_imports import when_imported
from fakegpu_lab.hardware.errors import FakeGpuError, with_notes

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


OLDEST = (3, 9)
"""The oldest version of Triton whose interpreter the simulation can build on."""
NEWER = f"pip install 'triton>={'.'.join(map(str, OLDEST))}'"
"""Without this package's extra: PyTorch's CUDA builds name one older Triton, and pip would look for another torch."""


def install(patches: Patches) -> None:
    """Stand in for CUDA's driver, and for `triton.testing.do_bench`."""
    when_imported("triton", patches, partial(_install, patches))


def too_old(version: str) -> bool:
    """Whether that version of Triton cannot be used."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST


def older(version: str) -> str:
    """What a student reads of that version of Triton."""
    oldest = ".".join(map(str, OLDEST))
    return f"Triton {version} is too old: simulated GPUs need {oldest} or newer. Run: {NEWER}, then restart the kernel."


class _TooOld:
    """Stands for CUDA's driver where Triton is too old: launching a kernel says so."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what torch and Python look for on any driver
            raise AttributeError(name)
        raise FakeGpuError(older(self._version)) from None


def _install(patches: Patches, triton: Any) -> None:
    from importlib import import_module

    choice = triton.runtime.driver
    if too_old(triton.__version__):
        patches.set(choice, "_default", _TooOld(triton.__version__))
        patches.set(choice, "_active", choice._default)
        return
    simulated = import_module("fakegpu_lab.kernels.triton_programs.driver")
    benchmarking = import_module("fakegpu_lab.kernels.triton_programs.benchmarking")
    driver = simulated.SimulatedDriver()
    patches.set(choice, "_default", driver)
    patches.set(choice, "_active", driver)
    testing = import_module("triton.testing")
    patches.set(testing, "do_bench", benchmarking.do_bench)
    patches.set(testing, "do_bench_cudagraph", benchmarking.do_bench_cudagraph)
    kernels = import_module("triton.runtime.jit").JITFunction
    patches.set(kernels, "__call__", _without_grid(kernels.__call__))
    knobs = import_module("triton.knobs")
    if hasattr(knobs, "warn_once"):
        patches.set(knobs, "warn_once", partial(_warn_once, knobs.warn_once))


def _without_grid(call: Any) -> Any:
    """What ``kernel(…)`` does: Triton's error, with a sentence below it that shows a launch."""

    @wraps(call)
    def called(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(kernel, *args, **kwargs)
        except RuntimeError as error:
            name = kernel.__name__
            with_notes(
                error, f"To launch a kernel, give it a grid: {name}[(programs,)](…), or {name}[(rows, columns)](…)."
            )
            raise

    return called


def _warn_once(warn: Any, message: str) -> None:
    """Leave out the warning about a setting that changes nothing here; standard error stays empty."""
    if "TRITON_DEFAULT_FP_FUSION" not in message:
        warn(message)
