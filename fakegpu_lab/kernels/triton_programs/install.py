"""Lets Triton see the simulated devices, as soon as the program imports it; nothing here imports it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.module_imports import when_imported
from fakegpu_lab.driver.compile.triton_version import older, too_old
from fakegpu_lab.hardware.errors import FakeGpuError, with_notes

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Stand in for CUDA's driver, and for `triton.testing.do_bench`."""
    when_imported("triton", patches, partial(_install, patches))


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
    backends = triton.backends.backends
    patches.set_item(backends, "nvidia", replace(backends["nvidia"], driver=simulated.SimulatedDriver))
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
