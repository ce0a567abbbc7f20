"""Products that only CUDA computes: with a result of another dtype, with a GELU.

Products of half-precision matrices with a float32 result are `_mm_dtype_out_cuda`, `_addmm_dtype_out_cuda` and
`baddbmm_bmm_out_dtype_checks` in cuda/Blas.cpp. The parameters are those of the schemas. `addmm` and `baddbmm` look
alike, but check their arguments in different orders, which decides the error that a user sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import gelu

from fakegpu_lab.driver.base.half_precision import into

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def with_tanh(op: Op, call: Kernel) -> Kernel:
    """`_addmm_activation`, whose GELU is the tanh approximation on CUDA (cuda/Blas.cpp, addmm_out_cuda_impl)."""

    def addmm_activation(*args: Any, use_gelu: bool = False, out: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if not use_gelu:
            return call(*args, **kwargs) if out is None else call(*args, **kwargs, out=out)
        result = gelu(torch.addmm(*args, **kwargs), approximate="tanh")
        return result if out is None else into(out, result)

    return addmm_activation
