"""The ops of SyncBatchNorm, which only CUDA has, on inner tensors (aten/src/ATen/native/cuda/Normalization.cuh).

Statistics are float32 for half-precision inputs, as elsewhere on CUDA.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.half_precision import widened

if TYPE_CHECKING:
    Tensor = torch.Tensor


def _all_but_channels(tensor: Tensor) -> list[int]:
    """All dimensions except the channels'."""
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _channels(values: Tensor, like: Tensor) -> Tensor:
    """One value for each channel, shaped to broadcast over `like`."""
    return widened(values).view([-1 if dim == 1 else 1 for dim in range(like.dim())])


def stats(source: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """``batch_norm_stats``: mean and 1 / deviation of each channel."""
    variance, mean = torch.var_mean(widened(source), _all_but_channels(source), correction=0)
    return mean, torch.rsqrt(variance + eps)


def gather_stats_with_counts(
    source: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """``batch_norm_gather_stats_with_counts``: the statistics of the whole batch, from those of all ranks."""
    weights = counts.view(-1, 1).to(mean.dtype)
    count = weights.sum()
    total = (mean * weights).sum(0) / count
    squares = ((invstd**-2 - eps + (mean - total) ** 2) * weights).sum(0)
    if running_mean is not None:
        running_mean.mul_(1 - momentum).add_((momentum * total).to(running_mean.dtype))
    if running_var is not None:
        running_var.mul_(1 - momentum).add_((momentum * squares / (count - 1)).to(running_var.dtype))
    return total, torch.rsqrt(squares / count + eps)


def gather_stats(source: Tensor, mean: Tensor, invstd: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """``batch_norm_gather_stats``: the same, where all ranks have the same number of values: the last argument."""
    counts = mean.new_full((mean.shape[0],), rest[-1])
    return gather_stats_with_counts(source, mean, invstd, *rest[:-1], counts)  # type: ignore[call-arg]


def elemt(
    source: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    """``batch_norm_elemt``: the normalised values."""
    result = (widened(source) - _channels(mean, source)) * _channels(invstd, source)
    if weight is not None:
        result = result * _channels(weight, source)
    if bias is not None:
        result = result + _channels(bias, source)
    return result.to(source.dtype)


def backward_reduce(
    grad: Tensor,
    source: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    needs_input: bool,
    needs_weight: bool,
    needs_bias: bool,
) -> tuple[Tensor | None, ...]:
    """``batch_norm_backward_reduce``: the sums that go to all ranks, and the gradients of weight and bias."""
    wide = widened(grad)
    total = wide.sum(_all_but_channels(grad))
    product = (wide * (widened(source) - _channels(mean, source))).sum(_all_but_channels(grad))
    dtype = weight.dtype if weight is not None else total.dtype
    return (
        total if needs_input else None,
        product if needs_input else None,
        (product * invstd).to(dtype) if needs_weight else None,
        total.to(dtype) if needs_bias else None,
    )


def backward_elemt(
    grad: Tensor,
    source: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    total: Tensor,
    product: Tensor,
    counts: Tensor,
) -> Tensor:
    """``batch_norm_backward_elemt``: the gradient of the input, given the sums over all ranks."""
    count = counts.sum().to(mean.dtype)
    scale = _channels(invstd, source)
    centred = (widened(source) - _channels(mean, source)) * scale**2 * _channels(product / count, source)
    result = (widened(grad) - _channels(total / count, source) - centred) * scale
    if weight is not None:
        result = result * _channels(weight, source)
    return result.to(source.dtype)
