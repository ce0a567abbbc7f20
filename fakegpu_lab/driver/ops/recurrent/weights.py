"""The weights of cuDNN's recurrent layers: views of one buffer, and their gradients likewise."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base.device_memory import take, take_bytes
from fakegpu_lab.driver.base.metadata import sync_metadata
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, share, wrap, wrap_view
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.placement import dtypes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.ops.recurrent.values import Call
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor

_SCATTERED = (
    "RNN module weights are not part of single contiguous chunk of memory. This means they need to be compacted at "
    "every call, possibly greatly increasing memory usage. To compact weights again call flatten_parameters()."
)


def weight_offsets(weights: Sequence[Tensor], per_layer: int, biased: bool) -> tuple[list[int], int]:
    """Where each weight begins in the buffer, in elements, and the buffer's length: matrices first, then biases.

    cuDNN's layers always have two biases; for a layer without biases they are zeros at the end.
    """
    bias = {i for i in range(len(weights)) if biased and i % per_layer in (2, 3)}
    offsets, end = [0] * len(weights), 0
    for i in [*(i for i in range(len(weights)) if i not in bias), *sorted(bias)]:
        offsets[i] = end
        end += weights[i].numel()
    if not biased:
        end += sum(2 * w.shape[0] for w in weights[::per_layer])
    return offsets, end


def _common_buffer(weights: Sequence[Any], per_layer: int, biased: bool) -> FakeCudaTensor | None:
    """The buffer, flat, of which all weights are views, or None (try_get_weight_buf)."""
    first = weights[0]
    offsets, length = weight_offsets(weights, per_layer, biased)
    if first.__class__ is not FakeCudaTensor:
        return None
    whole = first._buffer
    if any(
        w.__class__ is not FakeCudaTensor
        or w._buffer is not whole
        or w.dtype is not first.dtype
        or w.storage_offset() != at
        or not w.is_contiguous()
        for w, at in zip(weights, offsets, strict=True)
    ):
        return None
    if whole.nbytes < length * first.element_size():
        return None
    return wrap_view(first._inner.detach().as_strided((length,), (1,), 0), first._device, whole, first)


def check_attributes(source: Tensor, weights: Sequence[Tensor], hidden: Sequence[Tensor | None]) -> None:
    """``check_attributes`` of aten/src/ATen/native/RNN.h, with `check_dtype`: hidden states first, then weights.

    Raises
    ------
    RuntimeError
        A tensor is on another device than the input, or has another dtype.
    """
    named = [("hidden", tensor) for tensor in hidden if tensor is not None]
    named += [("parameter", weight) for weight in weights]
    for name, tensor in named:
        if tensor.device != source.device:
            raise RuntimeError(
                f"Input and {name} tensors are not at the same device, found input tensor at {source.device} and "
                f"{name} tensor at {tensor.device}"
            )
        if tensor.dtype is not source.dtype:
            raise RuntimeError(
                f"Input and {name} tensors are not the same dtype, found input tensor with "
                f"{dtypes.scalar_type(source.dtype)} and {name} tensor with {dtypes.scalar_type(tensor.dtype)}"
            )


def flatten(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``_cudnn_rnn_flatten_weight``: turn the weights into views of one new buffer."""
    weights, per_layer = args[0], args[1]
    proj = args[5] if len(args) > 5 else kwargs.get("proj_size", 0)
    biased = per_layer - bool(proj) == 4
    offsets, length = weight_offsets(weights, per_layer, biased)
    first = weights[0]
    device = first._device
    if device.retired:
        raise device_asserts.retired_error(device)
    buffer = take_bytes(device, length * first.element_size())
    whole = torch.zeros(length, dtype=first.dtype, device=first._inner.device)
    flat = wrap(whole, device, buffer)
    for _ in (None, *weights):  # one kernel fills the buffer with zeros, the others copy
        kernel(device)
    for weight, at in zip(weights, offsets, strict=True):
        view = whole[at : at + weight.numel()].view(weight.shape)
        view.copy_(weight._inner)
        weight._inner = view
        weight._buffer = buffer
        sync_metadata(weight)
        share(weight, flat)
    return flat


def flat_weights(
    source: Tensor, weights: Sequence[Tensor], hidden: Sequence[Tensor | None], per_layer: int, biased: bool
) -> FakeCudaTensor | None:
    """The buffer of the weights, or None after a warning if they do not share one."""
    flat = _common_buffer(weights, per_layer, biased)
    if flat is None:
        check_attributes(source, weights, hidden)
        warnings.warn(_SCATTERED, UserWarning, stacklevel=3)  # the caller of `layer`
    return flat


def weight_gradients(
    device: Device, named: dict[str, Any], call: Call, grads: Sequence[Tensor]
) -> list[FakeCudaTensor]:
    """The gradients as device tensors: views of one buffer, like the weights."""
    offsets, length = weight_offsets(named["weight"], named["weight_stride0"], call.biased)
    buffer = take_bytes(device, length * call.source.element_size())
    if not call.biased:  # cuDNN's layer has biases, torch's has none: each gradient is copied out
        return [wrap(grad.contiguous(), device, take(device, grad)) for grad in grads]
    whole = torch.empty(length, dtype=call.source.dtype, device=call.source.device)
    views = []
    for grad, at in zip(grads, offsets, strict=True):
        view = whole[at : at + grad.numel()].view(grad.shape)
        view.copy_(grad)
        views.append(wrap_view(view, device, buffer))
    return views
