"""Computes a fused attention kernel's results on the host, forward and backward.

torch's CPU flash kernel computes what it can. The rest (dropout, values of another width than the keys, a mask together
with causality) goes over the queries in blocks, so that the host, like the card, never holds an N×N matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fakegpu_lab.driver.base.half_precision import HALVES, SLOW_PRODUCTS
from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from collections.abc import Iterator

    Tensor = torch.Tensor

_aten: Any = torch.ops.aten
BOTTOM_RIGHT = 2
"""The other kind of causality, by which flash attention aligns its mask where the lengths differ."""
_BLOCK = 1 << 21
"""Scores computed at once."""


class Settings(NamedTuple):
    """A call's arguments other than tensors.

    Attributes
    ----------
    causal
        Whether the first query sees the first key only; `BOTTOM_RIGHT`: whether the last query sees every key.
    scale
        Factor of the scores; None for one over the square root of the width.
    seed
        Of the dropout mask, which forward and backward both draw.
    offset
        Where the memory-efficient kernel's mask begins among the generator's numbers: it is a card's mask. None for the
        masks of the other kernels, which differ from a card's.
    """

    causal: bool | int
    scale: float | None
    dropout: float = 0.0
    seed: int = 0
    offset: int | None = None


def _by_cpu_kernel(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, settings: Settings) -> bool:
    """Whether torch's kernel computes it. Without heads, queries or keys, it divides by 0 and ends the process."""
    return (
        not settings.dropout
        and bool(q.numel() and k.numel())
        and q.shape[-1] == k.shape[-1] == v.shape[-1]
        and not (settings.causal and (bias is not None or _later(q, k, settings)))
    )


def _repeated(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values repeated to one head for each head of the queries."""
    heads = q.shape[1]
    k, v = (t if t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    return k, v


def _summed_like(grad: Tensor, like: Tensor) -> Tensor:
    """A gradient of repeated heads, summed over the heads that share a head of `like`."""
    if grad.shape[1] == like.shape[1]:
        return grad
    batch, heads, *rest = like.shape
    return grad.reshape(batch, heads, -1, *rest).sum(2)


def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, settings: Settings) -> tuple[Tensor, Tensor]:
    """The output, (batch, heads, queries, width), and the logsumexp of rows, (batch, heads, queries), float32."""
    if q.is_meta:
        return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty(q.shape[:3], dtype=torch.float32)
    if q.dtype in SLOW_PRODUCTS:
        out, rows = forward(q.float(), k.float(), v.float(), None if bias is None else bias.float(), settings)
        return out.to(q.dtype), rows
    keys, values = _repeated(q, k, v)
    if _by_cpu_kernel(q, keys, values, bias, settings):
        out, rows = _aten._scaled_dot_product_flash_attention_for_cpu(
            q, keys, values, 0.0, bool(settings.causal), attn_mask=bias, scale=settings.scale
        )
        return out, rows
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    rows = q.new_empty(q.shape[:3], dtype=torch.float32)
    for part, scores, kept in _blocks(q, keys, bias, settings):
        sums = scores.logsumexp(-1)
        rows[:, :, part] = sums
        weights = _weights(scores, sums)
        out[:, :, part] = ((weights if kept is None else weights * kept) @ values.float()).to(out.dtype)
    return out, rows


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    out: Tensor,
    rows: Tensor,
    settings: Settings,
    needs_bias: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of queries, keys, values and, with `needs_bias`, of the mask."""
    if q.is_meta:
        grad_mask = torch.empty_like(bias) if needs_bias and bias is not None else None
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), grad_mask
    if q.dtype in HALVES:  # the CPU's kernel for these is slow on every processor
        mask = None if bias is None else bias.float()
        dq, dk, dv, grad_mask = backward(
            grad.float(), q.float(), k.float(), v.float(), mask, out.float(), rows, settings, needs_bias
        )
        if grad_mask is not None and bias is not None:
            grad_mask = grad_mask.to(bias.dtype)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), grad_mask
    keys, values = _repeated(q, k, v)
    if _by_cpu_kernel(q, keys, values, bias, settings) and not needs_bias:
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        rows = rows.transpose(1, 2).contiguous().transpose(1, 2)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, keys, values, out, rows, 0.0, bool(settings.causal), attn_mask=bias, scale=settings.scale
        )
        return dq, _summed_like(dk, k), _summed_like(dv, v), None
    dq, dk, dv = (torch.zeros(t.shape, dtype=torch.float32) for t in (q, keys, values))
    grad_mask = torch.zeros(bias.shape, dtype=bias.dtype) if needs_bias and bias is not None else None
    scale = _scale(q, settings)
    delta = (grad.float() * out.float()).sum(-1, keepdim=True)
    for part, scores, kept in _blocks(q, keys, bias, settings):
        weights = _weights(scores, rows[:, :, part])
        grad_part = grad[:, :, part].float()
        dropped = weights if kept is None else weights * kept
        dv += dropped.transpose(-1, -2) @ grad_part
        grad_weights = grad_part @ values.float().transpose(-1, -2)
        if kept is not None:
            grad_weights = grad_weights * kept
        grad_scores = weights * (grad_weights - delta[:, :, part])
        if grad_mask is not None:
            grad_mask[:, :, part] = grad_scores.to(grad_mask.dtype)
        dq[:, :, part] = grad_scores @ keys.float() * scale
        dk += grad_scores.transpose(-1, -2) @ q[:, :, part].float() * scale
    return dq.to(q.dtype), _summed_like(dk, k).to(k.dtype), _summed_like(dv, v).to(v.dtype), grad_mask


def _later(q: Tensor, k: Tensor, settings: Settings) -> int:
    """How many keys more than its own position a query sees."""
    return k.shape[2] - q.shape[2] if settings.causal == BOTTOM_RIGHT else 0


def _scale(q: Tensor, settings: Settings) -> float:
    return float(settings.scale if settings.scale is not None else max(q.shape[-1], 1) ** -0.5)


def _weights(scores: Tensor, sums: Tensor) -> Tensor:
    """softmax(scores); zeros in rows without a key."""
    return (scores - sums.float().unsqueeze(-1)).exp_().nan_to_num_(nan=0.0)


def _blocks(
    q: Tensor, k: Tensor, bias: Tensor | None, settings: Settings
) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """For each block of queries: its slice, its scores in float32, and dropout's factors of the weights."""
    batch, heads, count = q.shape[:3]
    length = k.shape[2]
    step = max(1, _BLOCK // max(1, batch * heads * length))
    scale = _scale(q, settings)
    source = torch.Generator().manual_seed(settings.seed % 2**63) if settings.dropout else None
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        scores = q[:, :, part].float() @ k.float().transpose(-1, -2) * scale
        if bias is not None:
            scores += bias[:, :, part].float()
        if settings.causal:
            ahead = torch.arange(length) - _later(q, k, settings) > torch.arange(part.start, part.stop).unsqueeze(1)
            scores.masked_fill_(ahead, float("-inf"))
        kept = None
        if source is not None:
            keep = 1.0 - settings.dropout
            if settings.offset is None:
                mask = torch.rand(scores.shape, generator=source) < keep
            else:
                mask = uniform_numbers(settings, (batch, heads, count, length), part) > settings.dropout
            kept = mask.float() / keep if keep else mask.float()
        yield part, scores, kept


def uniform_numbers(settings: Settings, shape: tuple[int, int, int, int], part: slice) -> Tensor:
    """The random numbers from which the memory-efficient kernel makes its mask, for some of the queries.

    Each score, in the order of memory, has one number of the generator's thread 0 (mem_eff_attention/kernel_forward.h,
    `dropout_batch_head_rng_offset`).
    """
    batch, heads, count, length = shape
    numbers = torch.empty((batch, heads, part.stop - part.start, length))
    for i, head in enumerate(numbers.flatten(0, 1)):
        position = (settings.offset or 0) + (i * count + part.start) * length
        curand.consecutive(head.flatten().numpy(), settings.seed, position)
    return numbers
