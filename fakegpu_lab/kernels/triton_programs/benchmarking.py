"""`triton.testing.do_bench` in simulated time: every run takes the same time, so one is measured.

Of the templates among which ``mode="max-autotune"`` chooses, nothing is compiled or launched before one is chosen.
"""

from __future__ import annotations

from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.kernels.triton_programs.launcher import Launcher, product

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CACHE = 256 * 2**20
"""Bytes that Triton writes before each run, so that nothing of the data is left in L2."""


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """The milliseconds that ``fn()`` takes on the simulated GPU."""
    assert return_mode in ("min", "max", "mean", "median", "all")
    fn()
    torch.cuda.synchronize()
    for tensor in grad_to_none or ():
        tensor.grad = None
    device = current.device()
    launching.queue(device, (device.roofline.streaming(_CACHE), 1.0, 0, _CACHE))
    event: Any = torch.cuda.Event
    begin, end = event(enable_timing=True), event(enable_timing=True)
    begin.record()
    fn()
    end.record()
    torch.cuda.synchronize()
    taken = begin.elapsed_time(end)
    if quantiles is not None:
        times = [taken] * len(quantiles)
        return times[0] if len(times) == 1 else times
    return [taken] if return_mode == "all" else taken


def do_bench_cudagraph(
    fn: Callable[[], Any],
    rep: float = 20,
    grad_to_none: Sequence[torch.Tensor] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """The same, without the host's part."""
    return do_bench(fn, 0, rep, grad_to_none, quantiles, return_mode)


def of_products(benchmark: Callable[..., Any]) -> Callable[..., Any]:
    """`BenchmarkRequest.benchmark`: the milliseconds of one choice, which for a template of products are estimated.

    A few of its programs are tried. Shared memory and registers are what Inductor itself expects before it compiles
    (``get_shared_memory_estimation`` and the accumulator's registers in torch/_inductor/template_heuristics/triton.py).
    """

    @wraps(benchmark)
    def milliseconds(self: Any, *input_tensors: torch.Tensor, out: torch.Tensor | None = None) -> Any:
        if out is None:
            return benchmark(self, *input_tensors, out=out)
        try:
            call = self.make_run_fn(*input_tensors, out=out)
            tuner: Any = getattr(call.func, "__self__", None)
            block = product(getattr(getattr(tuner, "fn", None), "src", ""))
            if block is None:
                return benchmark(self, *input_tensors, out=out)
            *args, x, y, z = call.args
            m, n, k = block
            loaded = dict(zip(tuner.fn.arg_names, args, strict=True)).get("arg_A", out).element_size()
            about = SimpleNamespace(
                name=self.kernel_name,
                num_warps=self.num_warps,
                shared=loaded * (m + n) * k * self.num_stages,
            )
            template = Launcher(SimpleNamespace(fn=tuner.fn, signature=tuner.triton_meta["signature"]), about)
            accumulator = m * n // (self.num_warps * 32)
            time = template.trial((x, y, z), min(accumulator, 255), *args).time
            assert time is not None
            return time.ns / 1e6
        finally:
            self.cleanup_run_fn()

    return milliseconds
