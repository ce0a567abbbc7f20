"""``torch.histc``: of integers, which torch's CPU kernel refuses, and with CUDA's errors; for mixtures of experts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.half_precision import into

if TYPE_CHECKING:
    from collections.abc import Callable

_histc: Callable[..., torch.Tensor] = torch.ops.aten.histc.default
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def histc(
    source: torch.Tensor,
    bins: int = 100,
    min: Any = 0,  # noqa: A002 - torch's name
    max: Any = 0,  # noqa: A002 - torch's name
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """``histc`` of an inner tensor (cuda/SummaryOps.cu, _histc_cuda_template and getBin)."""
    result = _histogram(source, bins, min, max)
    return result if out is None else into(out, result)


def _histogram(source: torch.Tensor, bins: int, low: Any, high: Any) -> torch.Tensor:
    if source.dtype is torch.float16:
        raise RuntimeError("HalfTensor is not supported")
    if source.dtype is torch.bfloat16:
        raise NotImplementedError("\"histc\" not implemented for 'BFloat16'")
    if source.is_meta:
        return _histc(source, bins, low, high)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if source.dtype not in _INTEGERS:
        _check_range(source, low, high)
        return _histc(source, bins, low, high)
    values = source.flatten().long()  # for integers, bounds and division are int64
    low, high = int(low), int(high)
    if low == high and values.numel():
        low, high = int(values.min()), int(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError("max must be larger than min")
    within = values[(values >= low) & (values <= high)]
    places = ((within - low) * bins).div(high - low, rounding_mode="floor").clamp(max=bins - 1)
    return torch.bincount(places, minlength=bins).to(source.dtype)


def _check_range(source: torch.Tensor, low: Any, high: Any) -> None:
    if low == high and source.numel():
        low, high = source.min().item(), source.max().item()
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")
