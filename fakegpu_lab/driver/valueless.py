"""``compute="meta"``: tensors with shapes and memory, and no numbers.

The inner tensors live on torch's meta device, so a kernel costs microseconds and no RAM, and everything that is
counted is counted as ever. Two things remain: the ops for which torch has no shape function, or one that keeps other
tensors than the kernel does (`SHAPES`), and the errors of those whose result depends on values (`explained`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver import current
from fakegpu_lab.driver.transfer import NoValuesError, no_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.op import Op

    Tensor = torch.Tensor


def _like(position: int) -> Callable[..., Tensor]:
    """One new tensor with the shape and dtype of an argument."""

    def shape(*args: Any, **kwargs: Any) -> Tensor:
        return torch.empty_like(args[position], memory_format=torch.contiguous_format)

    return shape


def _nothing(*args: Any, **kwargs: Any) -> None:
    """An op that only writes to its arguments."""


def _geqrf(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """BatchLinearAlgebra.cpp, `geqrf`: the factors column by column, and one scalar a reflector."""
    taus = matrix.new_empty((*matrix.shape[:-2], min(matrix.shape[-2:])))
    return torch.empty_like(matrix.mT, memory_format=torch.contiguous_format).mT, taus


def _native_batch_norm(
    source: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    *rest: Any,
) -> tuple[Tensor, ...]:
    """In evaluation nothing is saved for backward (Normalization.cpp), where the shape function keeps two vectors."""
    results = torch.ops.aten.native_batch_norm.default(source, weight, bias, mean, variance, training, *rest)
    if training:
        return results  # type: ignore[no-any-return]
    return results[0], source.new_empty(0), source.new_empty(0)


def _convolution(source: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """Channels last if one of the two is (`cudnn_conv_suggest_memory_format` in native/ConvUtils.h)."""
    result: Tensor = torch.ops.aten.convolution.default(source, weight, *rest)
    last = torch.channels_last if result.dim() == 4 else torch.channels_last_3d
    if result.dim() in (4, 5) and any(
        t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (source, weight)
    ):
        return torch.empty_like(result, memory_format=last)
    return result


SHAPES: dict[str, Callable[..., Any]] = {
    "_ctc_loss_backward": _like(1),
    "_fused_adagrad_": _nothing,
    "_fused_sgd_": _nothing,
    "convolution": _convolution,
    "fractional_max_pool3d_backward": _like(1),
    "geqrf": _geqrf,
    "multi_margin_loss_backward": _like(1),
    "multilabel_margin_loss_backward": _like(1),
    "native_batch_norm": _native_batch_norm,
}
"""What stands in for the ops of these names."""


def kernel(op: Op) -> Callable[..., Any]:
    """What computes `op` on the inner tensors of this machine."""
    return SHAPES.get(op.name, op.call) if current.meta() else op.call


_SIGNS = (
    "with Meta tensors",  # no shape function
    "Meta' backend",
    "register_meta function",  # nonzero
    "on meta tensors",  # item
    "a meta tensor",  # repeat_interleave
    "Cannot copy out of meta tensor",
)


def explained(func: Any, error: Exception) -> Exception:
    """`error` as one that names the mode and the way out, if it comes from there being no values; else itself."""
    if not current.meta() or not isinstance(error, RuntimeError) or isinstance(error, NoValuesError):
        return error
    text = str(error)
    if any(sign in text for sign in _SIGNS):
        return no_values(f"torch.{func._schema.name.partition('::')[2]}")
    return error
