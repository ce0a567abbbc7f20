"""Convolutions: how they are computed, and which library CUDA chooses."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import half_precision
from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.half_precision import BOTH, SLOW_PRODUCTS
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op


def in_float32(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` of a convolution, forward or backward, with operands in half precision widened where that is quicker.

    oneDNN is slow in float16, backward, on every processor. In bfloat16 it is as fast as the processor, but for some
    volumes it has only its reference implementation.
    """
    flat = half_precision.in_float32(call, SLOW_PRODUCTS | {torch.float16}, written=op.written)
    volumes = half_precision.in_float32(call, BOTH, written=op.written)

    def convolution(*args: Any, **kwargs: Any) -> Any:
        return (volumes if args[0].dim() == _VOLUME else flat)(*args, **kwargs)

    return convolution


def forward(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    """`in_float32`, and 3D convolutions in channels-last format if input or weight is.

    cudnn_conv_suggest_memory_format in native/ConvUtils.h.
    """
    last, compute = torch.channels_last_3d, in_float32(op, call)

    def convolution(source: torch.Tensor, weight: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
        result = compute(source, weight, *rest, **kwargs)
        if weight.dim() == _VOLUME and any(
            tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() for tensor in (source, weight)
        ):
            return result.contiguous(memory_format=last)
        return result

    return convolution


_Backend: Any = torch._C._ConvBackend  # type: ignore[attr-defined]


def _selecting(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._C._select_conv_backend`, which knows no library for our devices."""

    @functools.wraps(original)
    def select_conv_backend(source: torch.Tensor, weight: torch.Tensor, *rest: Any, **options: Any) -> Any:
        chosen = original(source, weight, *rest, **options)
        if chosen != _Backend.Overrideable or source.__class__ is not FakeCudaTensor:
            return chosen
        names = ("bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
        return _backend(source, weight, {**dict(zip(names, rest, strict=False)), **options})

    return select_conv_backend


def _backend(source: torch.Tensor, weight: torch.Tensor, named: dict[str, Any]) -> Any:
    """`_select_conv_backend` in aten/src/ATen/native/Convolution.cpp; one dimension is taken as two.

    Simplified: for depthwise convolutions in half precision, a table of workloads decides between cuDNN and a kernel of
    PyTorch's own; here it is always the latter.
    """
    volume, transposed = source.dim() == _VOLUME, named["transposed"]
    dilated = any(step != 1 for step in named["dilation"])
    groups = named["groups"]
    if not transposed and groups > 1 and source.shape[1] == groups and weight.shape[0] % groups == 0:
        return _Backend.CudaDepthwise3d if volume else _Backend.CudaDepthwise2d
    cpp: Any = torch._C
    large = any(p >= s for p, s in zip(named["output_padding"], named["stride"], strict=False))
    undetermined = cpp._get_cudnn_deterministic() and dilated
    if cpp._get_cudnn_enabled() and not large and not undetermined:
        return _Backend.CudnnTranspose if transposed else _Backend.Cudnn
    if transposed:
        return _Backend.SlowTranspose3d if volume else _Backend.SlowTranspose2d
    if volume:
        return _Backend.SlowDilated3d
    return _Backend.SlowDilated2d if dilated else _Backend.Slow2d


_VOLUME = 5  # dimensions


CHANGES = [wrapped("torch._C._select_conv_backend", _selecting, "the library that computes a convolution on the card")]
