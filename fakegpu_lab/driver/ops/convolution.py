"""Convolutions: how they are computed, and which library CUDA chooses."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensor

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
    """`in_float32`, with the result in the card's memory format."""
    compute = in_float32(op, call)

    def convolution(source: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
        return _formatted(compute(source, weight, *rest), source, weight, rest)

    return convolution


def backward(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    """`in_float32`, with gradients in the card's memory format."""
    compute = in_float32(op, call)

    def convolution_backward(grad: torch.Tensor, source: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Any:
        *gradients, of_bias = compute(grad, source, weight, *rest)
        return (*(_formatted(one, source, weight, rest) for one in gradients), of_bias)

    return convolution_backward


def _formatted(result: Any, source: torch.Tensor, weight: torch.Tensor, rest: tuple[Any, ...]) -> Any:
    """A result in the memory format of the library that computes it on the card; the CPU's library has its own."""
    if result is None or source.dim() < _VOLUME - 1 or all(one.is_contiguous() for one in (result, source, weight)):
        return result
    backend = _backend(source, weight, dict(zip(_NAMES, rest, strict=False)))
    last = layout_of_convolution(source, weight) if backend in _CUDNN else torch.contiguous_format
    return result.contiguous(memory_format=last)


_Backend: Any = torch._C._ConvBackend  # type: ignore[attr-defined]
_CUDNN = (_Backend.Cudnn, _Backend.CudnnTranspose)
_NAMES = ("bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")


def _selecting(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._C._select_conv_backend`, which knows no library for our devices."""

    @functools.wraps(original)
    def select_conv_backend(source: torch.Tensor, weight: torch.Tensor, *rest: Any, **options: Any) -> Any:
        chosen = original(source, weight, *rest, **options)
        if chosen != _Backend.Overrideable or not _on_the_card(source):
            return chosen
        return _backend(source, weight, {**dict(zip(_NAMES, rest, strict=False)), **options})

    return select_conv_backend


def _on_the_card(tensor: torch.Tensor) -> bool:
    return tensor.__class__ is FakeCudaTensor or (isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda")


def _determining(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._C._conv_determine_backend_memory_format`, by which a FakeTensor has the strides of a result."""

    @functools.wraps(original)
    def determine(source: torch.Tensor, weight: torch.Tensor, backend: Any) -> Any:
        if backend in _CUDNN and _on_the_card(source):
            return layout_of_convolution(source, weight)
        return original(source, weight, backend)

    return determine


def layout_of_convolution(source: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """Channels last, if source or weight is (`cudnn_conv_suggest_memory_format` in native/ConvUtils.h)."""
    if torch.float64 in (source.dtype, weight.dtype):
        return torch.contiguous_format
    formats = (suggest_memory_format(one) for one in (source, weight))
    return next((one for one in formats if one != torch.contiguous_format), torch.contiguous_format)


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


_WHY = "the library that computes a convolution on the card, and its memory format"
CHANGES = [
    wrapped("torch._C._select_conv_backend", _selecting, _WHY),
    wrapped("torch._C._conv_determine_backend_memory_format", _determining, _WHY),
]
