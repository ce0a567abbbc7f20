"""The time of the templates among which Inductor chooses with ``mode="max-autotune"``.

Nothing is compiled or launched before one of them is chosen.
"""

from __future__ import annotations

from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.kernels.triton_programs.launcher import Launcher, product

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch


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
