"""Convolutions: cuDNN's workspace, cuDNN's own names (`torch.cudnn_convolution`), and which library CUDA chooses.

Simplified: what cuDNN fuses with a convolution (bias, addition, ReLU) are kernels of their own.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.convolutions import workspaces

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches
    from fakegpu_lab.driver.cost.op import Op, Plan

_convolution: Callable[..., torch.Tensor] = torch.ops.aten.convolution.default


def cudnn_convolution(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``aten::cudnn_convolution``; its arguments about algorithms do not change the result."""
    source, weight, padding, stride, dilation, groups = args[:6]
    return _convolution(source, weight, None, stride, padding, dilation, False, [0] * len(padding), groups)


def cudnn_convolution_transpose(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``aten::cudnn_convolution_transpose``."""
    source, weight, padding, output_padding, stride, dilation, groups = args[:7]
    return _convolution(source, weight, None, stride, padding, dilation, True, output_padding, groups)


def cudnn_convolution_relu(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``aten::cudnn_convolution_relu``."""
    source, weight, bias, stride, padding, dilation, groups = args
    return _convolution(source, weight, bias, stride, padding, dilation, False, [0] * len(padding), groups).relu_()


def cudnn_convolution_add_relu(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """``aten::cudnn_convolution_add_relu``."""
    source, weight, other, alpha, bias, stride, padding, dilation, groups = args
    out = _convolution(source, weight, bias, stride, padding, dilation, False, [0] * len(padding), groups)
    return out.add_(other, alpha=1 if alpha is None else alpha).relu_()


HANDLERS: dict[str, Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = {
    "cudnn_convolution": cudnn_convolution,
    "cudnn_convolution_transpose": cudnn_convolution_transpose,
    "cudnn_convolution_relu": cudnn_convolution_relu,
    "cudnn_convolution_add_relu": cudnn_convolution_add_relu,
}


def with_workspace(op: Op, plan: Plan) -> Plan:
    """`plan`, and the memory that cuDNN takes while it computes; the same plan for other ops.

    The memory is taken when the results have theirs, and given back at once. If there is not enough, PyTorch tries
    another algorithm (aten/src/ATen/native/cudnn/Conv_v8.cpp, try_plans), which is taken to need none.
    """
    if op.name not in ("convolution", "convolution_backward"):
        return plan

    def convolved(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = plan(args, kwargs)
        first = args[0]
        if first.__class__ is FakeCudaTensor and first.dim() == 4:
            _borrow(op.name, first._device, args, result)
        return result

    return convolved


def _borrow(name: str, device: Any, args: tuple[Any, ...], result: Any) -> None:
    with suppress(torch.OutOfMemoryError):
        for nbytes in workspaces(name, device, args, result):
            take_bytes(device, nbytes)


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


def install(patches: Patches) -> None:
    """Patch the function that says which library computes a convolution."""
    patches.set(torch._C, "_select_conv_backend", _selecting(torch._C._select_conv_backend))
