"""The backward of CUDA's fused attention kernels.

Follows aten/src/ATen/native/transformers/cuda/attention_backward.cu and flash_attn/flash_api.cpp. Estimates: cuDNN's
workspace, which is not public, is as large as flash's; the efficient kernel takes one float32 accumulator for the
queries where the operands are half precision.

The functions' parameters are those of the ops' schemas, so the lists resemble each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import storage_bytes, take_bytes
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.base.tensor import wrap, wrap_view
from fakegpu_lab.driver.ops.attention import values
from fakegpu_lab.driver.ops.attention.kernels import (
    FLOAT,
    empty_alike,
    flash_width,
    heads_last,
    laid_out,
    rounded,
)
from fakegpu_lab.driver.ops.attention.values import BOTTOM_RIGHT, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.base.tensor import FakeCudaTensor
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

    Tensor = torch.Tensor


def _backward_settings(
    causal: bool | int, scale: float | None, dropout: float, seed: Tensor | None, offset: Tensor | None = None
) -> Settings:
    if not dropout or seed is None or seed.is_meta:
        return Settings(causal, scale, dropout)
    return Settings(causal, scale, dropout, int(seed.flatten()[0]), None if offset is None else int(offset))


def flash_workspace(
    device: Device, padded_rows: int, heads: int, width: int, key_value: tuple[Tensor, Tensor], heads_dim: int
) -> list[Buffer]:
    """What flash takes while it runs: sums and an accumulator for the queries' rows, of all heads, in float32.

    Where several heads share keys, it makes a gradient for each head of the queries, and sums them afterwards.
    """
    workspace = [take_bytes(device, padded_rows * n * FLOAT) for n in (1, flash_width(width))]
    key, value = key_value
    if key.shape[heads_dim] != heads:
        workspace += [take_bytes(device, t.nbytes * (heads // t.shape[heads_dim])) for t in (key, value)]
    return workspace


def efficient_workspace(device: Device, query: Tensor, padded_rows: int) -> list[Buffer]:
    """What the memory-efficient kernel takes while it runs: delta, and an accumulator for half precision."""
    workspace = [take_bytes(device, padded_rows * FLOAT)]
    if query.dtype in HALVES:
        workspace.append(take_bytes(device, padded_rows * rounded(query.shape[-1], 32) * FLOAT))
    return workspace


def _flash_like_backward(
    device: Device,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    rows: Tensor,
    likes: list[Tensor],
    settings: Settings,
    bias: Tensor | None = None,
) -> tuple[Any, ...]:
    batch, heads, length, width = query.shape
    buffers = [take_bytes(device, storage_bytes(like)) for like in likes]
    workspace = flash_workspace(device, batch * heads * rounded(length, 128), heads, width, (key, value), 1)
    *grads, _ = values.backward(grad_out, query, key, value, bias, out, rows, settings)
    del workspace
    return tuple(_wrap_like(device, likes, grads, buffers))


def _wrap_like(
    device: Device, likes: list[Tensor], grads: Sequence[Any], buffers: list[Buffer]
) -> list[FakeCudaTensor]:
    """The gradients as device tensors in their buffers, in the memory layouts of `likes`."""
    return [wrap(laid_out(like, grad), device, b) for like, grad, b in zip(likes, grads, buffers, strict=True)]


def flash_backward(
    device: Device,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    philox_seed: Tensor,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_flash_attention_backward``."""
    copies = [take_bytes(device, t.nbytes) for t in (grad_out, out) if not t.transpose(1, 2).is_contiguous()]
    likes = [empty_alike(t.transpose(1, 2)).transpose(1, 2) for t in (query, key, value)]
    settings = _backward_settings(BOTTOM_RIGHT * is_causal, scale, dropout_p, philox_seed)
    grads = _flash_like_backward(device, grad_out, query, key, value, out, logsumexp, likes, settings)
    del copies
    return grads


def efficient_backward(
    device: Device,
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_efficient_attention_backward``.

    The gradients of tensors that share a storage share one, too (_chunk_grad_outputs_efficient_attention).
    """
    batch, heads, rows, _ = query.shape
    bias = attn_bias if attn_bias is not None and attn_bias.numel() else None
    likes = [heads_last(tuple(t.shape), t.dtype) for t in (query, key, value)]
    shared = _share_storage(query, key, value)
    buffers = (
        [take_bytes(device, 3 * query.nbytes)] * 3 if shared else [take_bytes(device, storage_bytes(t)) for t in likes]
    )
    needs_bias = bool(grad_input_mask[3]) and bias is not None
    if bias is not None and needs_bias:
        last = rounded(bias.shape[-1], 16)
        bias_buffer = take_bytes(device, bias.numel() // bias.shape[-1] * last * bias.element_size())
    copied = None if grad_out_.transpose(1, 2).is_contiguous() else take_bytes(device, grad_out_.nbytes)
    workspace = efficient_workspace(device, query, batch * heads * rounded(rows, 32))
    settings = _backward_settings(is_causal, scale, dropout_p, philox_seed, philox_offset)
    sums = logsumexp[:, :, :rows]
    if not logsumexp.shape[2]:  # only the mask is trained: forward kept no sums, and a card would read past them
        sums = values.forward(query, key, value, bias, settings)[1]
    *grads, grad_mask = values.backward(grad_out_, query, key, value, bias, out, sums, settings, needs_bias=needs_bias)
    if shared:
        stacked = torch.stack([grad.transpose(1, 2) for grad in grads], 2)  # batch, length, which, heads, width
        wrapped = [wrap_view(stacked.select(2, i).transpose(1, 2), device, buffers[i]) for i in range(3)]
    else:
        wrapped = _wrap_like(device, likes, grads, buffers)
    needed = [grad if wanted else None for grad, wanted in zip(wrapped, grad_input_mask, strict=False)]
    del copied, workspace
    return (*needed, wrap_view(grad_mask, device, bias_buffer) if grad_mask is not None else None)


def _share_storage(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether queries, keys and values are parts of one storage."""
    storage = query.untyped_storage().data_ptr()
    return (
        not query.is_meta
        and storage == key.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
        and query.shape == key.shape == value.shape
    )


def cudnn_backward(
    device: Device,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    attn_bias: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    **rest: Any,
) -> tuple[Any, ...]:
    """``_scaled_dot_product_cudnn_attention_backward``."""
    likes = [empty_alike(t) for t in (query, key, value)]
    bias = None
    if attn_bias is not None and attn_bias.numel():
        bias = attn_bias.expand(*query.shape[:3], key.shape[2])
    settings = _backward_settings(is_causal, scale, dropout_p, philox_seed)
    rows = logsumexp.squeeze(-1)
    return _flash_like_backward(device, grad_out, query, key, value, out, rows, likes, settings, bias)
