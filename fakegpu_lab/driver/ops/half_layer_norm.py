"""Layer norm of half-precision operands, which CUDA computes in float32, statistics included.

cuda/layer_norm_kernel.cu (`acc_type`); torch's CPU kernel would keep the statistics in half precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.half_precision import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor

_forward: Callable[..., Any] = torch.ops.aten.native_layer_norm.default
_backward: Callable[..., Any] = torch.ops.aten.native_layer_norm_backward.default


def _wide(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.float()


def layer_norm(source: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """``native_layer_norm`` of inner tensors."""
    if source.dtype not in HALVES:
        return _forward(source, shape, weight, bias, eps)
    out, mean, rstd = _forward(source.float(), shape, _wide(weight), _wide(bias), eps)
    return out.to(source.dtype), mean, rstd


def layer_norm_backward(
    grad: Tensor, source: Tensor, shape: Any, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None,
    mask: list[bool],
) -> Any:  # fmt: skip
    """``native_layer_norm_backward`` of inner tensors."""
    if source.dtype not in HALVES:
        return _backward(grad, source, shape, mean, rstd, weight, bias, mask)
    wide = _wide(weight), _wide(bias)
    grads = _backward(grad.float(), source.float(), shape, mean.float(), rstd.float(), *wide, mask)
    return tuple(
        None if g is None else g.to(like.dtype if like is not None else source.dtype)
        for g, like in zip(grads, (source, weight, bias), strict=True)
    )


CALLS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
}
"""Functions that compute an op on inner tensors in place of torch's CPU kernel."""
