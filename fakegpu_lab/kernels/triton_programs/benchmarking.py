"""`triton.testing.do_bench` in simulated time: every run takes the same time, so one is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.cost import launching

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
