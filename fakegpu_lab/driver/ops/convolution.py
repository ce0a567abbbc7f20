"""cuDNN's convolutions under their own names, such as `torch.cudnn_convolution`: `aten::convolution` without a bias."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

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
