"""What the simulation changes in Triton, as soon as the program imports it; nothing here imports it."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.changes import imported, item, replaced, wrapped
from fakegpu_lab.driver.compile.triton_version import missing, older, too_old
from fakegpu_lab.hardware.errors import FakeGpuError, with_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change


class _TooOld:
    """Stands for CUDA's driver where Triton is too old: launching a kernel says so."""

    def __init__(self, version: str) -> None:
        self._version = version

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what torch and Python look for on any driver
            raise AttributeError(name)
        raise FakeGpuError(older(self._version)) from None


def _rows(triton: Any) -> list[Change]:
    driver, why = "triton.runtime.driver.driver", "the card is simulated"
    if too_old(triton.__version__):
        none = _TooOld(triton.__version__)
        return [replaced(f"{driver}._default", none, why), replaced(f"{driver}._active", none, why)]
    simulated = import_module("fakegpu_lab.kernels.triton_programs.driver")
    benchmarking = import_module("fakegpu_lab.kernels.triton_programs.benchmarking")
    card = simulated.SimulatedDriver()
    return [
        replaced(f"{driver}._default", card, why),
        replaced(f"{driver}._active", card, why),
        item("triton.backends.backends", "nvidia", lambda b: replace(b, driver=simulated.SimulatedDriver), why),
        replaced("triton.testing.do_bench", benchmarking.do_bench, "times are the card's"),
        replaced("triton.testing.do_bench_cudagraph", benchmarking.do_bench_cudagraph, "times are the card's"),
        wrapped("triton.runtime.jit.JITFunction.__call__", _without_grid, "the error shows how to launch a kernel"),
        wrapped("triton.knobs.warn_once", _quiet, "standard error stays empty", optional=True),
    ]


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


def _quiet(warn: Any) -> Any:
    """Leave out the warning about a setting that changes nothing here."""

    def warn_once(message: str) -> None:
        if "TRITON_DEFAULT_FP_FUSION" not in message:
            warn(message)

    return warn_once


def _inductors(module: Any) -> list[Change]:
    """How Inductor chooses between the configurations of a kernel."""
    do_bench = import_module("fakegpu_lab.kernels.triton_programs.benchmarking").do_bench

    def benchmark_gpu(self: Any, _callable: Callable[[], Any], *args: Any, **kwargs: Any) -> Any:
        return do_bench(_callable)

    return [replaced(f"{module.__name__}.InductorBenchmarker.benchmark_gpu", benchmark_gpu, "times are the card's")]


def _templates(module: Any) -> list[Change]:
    """How Inductor chooses between templates; without Triton there are none."""
    if missing() is not None:
        return []
    of_products = import_module("fakegpu_lab.kernels.triton_programs.templates").of_products
    request = f"{module.__name__}.BenchmarkRequest.benchmark"
    return [wrapped(request, of_products, "a template is compiled once it is chosen")]


def _codegen(module: Any) -> list[Change]:
    """What Inductor's kernels compute is printed as they are made."""
    define = f"{module.__name__}.TritonScheduling.define_kernel"
    defining = import_module("fakegpu_lab.kernels.fused_loops.writing").defining
    return [wrapped(define, defining, "values of compiled kernels come from whole tensors")]


CHANGES = [
    imported("torch._inductor.codegen.triton", _codegen, "values of compiled kernels come from whole tensors"),
    imported("triton", _rows, "kernels of Triton run on simulated cards"),
    imported("torch._inductor.autotune_process", _templates, "times are the card's"),
    imported("torch._inductor.runtime.benchmarking", _inductors, "times are the card's"),
]
