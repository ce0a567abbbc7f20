"""The workspace of convolutions, and cuDNN's convolutions under their own names, such as `torch.cudnn_convolution`.

Those are `aten::convolution` without a bias.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.cost.convolutions import workspaces

if TYPE_CHECKING:
    from collections.abc import Callable

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


HANDLERS: dict[str, Callable[[Op, tuple[Any, ...], dict[str, Any]], Any]] = {
    "cudnn_convolution": cudnn_convolution,
    "cudnn_convolution_transpose": cudnn_convolution_transpose,
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
