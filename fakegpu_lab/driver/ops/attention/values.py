"""The numbers of a fused attention kernel, forward and backward, on the host.

torch's CPU flash kernel computes what it can; the rest (dropout, values of another width than the keys, a mask and
causality at once) goes block by block over the queries, so that the host, like the card, never holds an N×N matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    Tensor = torch.Tensor

_aten: Any = torch.ops.aten
_BLOCK = 1 << 21
"""Scores that are computed at once."""


class Settings(NamedTuple):
    """What a call asks for besides its tensors.

    Attributes
    ----------
    scale
        What the scores are multiplied by; None for one over the root of the width.
    seed
        Of the dropout's mask, which forward and backward draw alike. (The mask's digits are not a card's.)
    """

    causal: bool
    scale: float | None
    dropout: float = 0.0
    seed: int = 0


def _simple(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, how: Settings) -> bool:
    return not how.dropout and q.shape[-1] == k.shape[-1] == v.shape[-1] and not (how.causal and bias is not None)


def _groups(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, one head for each head of the queries."""
    heads = q.shape[1]
    k, v = (t if t.shape[1] == heads else t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    return k, v


def _ungroup(grad: Tensor, like: Tensor) -> Tensor:
    if grad.shape[1] == like.shape[1]:
        return grad
    batch, heads, *rest = like.shape
    return grad.reshape(batch, heads, -1, *rest).sum(2)


def forward(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, how: Settings) -> tuple[Tensor, Tensor]:
    """The output, (batch, heads, queries, width), and the rows' logsumexp, (batch, heads, queries), float32."""
    if q.is_meta:
        return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty(q.shape[:3], dtype=torch.float32)
    keys, values = _groups(q, k, v)
    if _simple(q, keys, values, bias, how):
        out, rows = _aten._scaled_dot_product_flash_attention_for_cpu(
            q, keys, values, 0.0, how.causal, attn_mask=bias, scale=how.scale
        )
        return out, rows
    out = q.new_empty((*q.shape[:3], v.shape[3]))
    rows = q.new_empty(q.shape[:3], dtype=torch.float32)
    for part, scores, kept in _blocks(q, keys, bias, how):
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
    how: Settings,
    of_bias: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """The gradients of queries, keys, values and, if asked for, of the mask."""
    if q.is_meta:
        of_mask = torch.empty_like(bias) if of_bias and bias is not None else None
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), of_mask
    keys, values = _groups(q, k, v)
    if _simple(q, keys, values, bias, how) and not of_bias:
        grad = grad if grad.stride(-1) == 1 else grad.contiguous()
        rows = rows.transpose(1, 2).contiguous().transpose(1, 2)
        dq, dk, dv = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad, q, keys, values, out, rows, 0.0, how.causal, attn_mask=bias, scale=how.scale
        )
        return dq, _ungroup(dk, k), _ungroup(dv, v), None
    dq, dk, dv = (torch.zeros(t.shape, dtype=torch.float32) for t in (q, keys, values))
    of_mask = torch.zeros(bias.shape, dtype=bias.dtype) if of_bias and bias is not None else None
    scale = _scale(q, how)
    delta = (grad.float() * out.float()).sum(-1, keepdim=True)
    for part, scores, kept in _blocks(q, keys, bias, how):
        weights = _weights(scores, rows[:, :, part])
        given = grad[:, :, part].float()
        dropped = weights if kept is None else weights * kept
        dv += dropped.transpose(-1, -2) @ given
        of_weights = given @ values.float().transpose(-1, -2)
        if kept is not None:
            of_weights = of_weights * kept
        of_scores = weights * (of_weights - delta[:, :, part])
        if of_mask is not None:
            of_mask[:, :, part] = of_scores.to(of_mask.dtype)
        dq[:, :, part] = of_scores @ keys.float() * scale
        dk += of_scores.transpose(-1, -2) @ q[:, :, part].float() * scale
    return dq.to(q.dtype), _ungroup(dk, k).to(k.dtype), _ungroup(dv, v).to(v.dtype), of_mask


def _scale(q: Tensor, how: Settings) -> float:
    return float(how.scale if how.scale is not None else max(q.shape[-1], 1) ** -0.5)


def _weights(scores: Tensor, sums: Tensor) -> Tensor:
    """softmax(scores); zeros in rows that see no key."""
    return (scores - sums.float().unsqueeze(-1)).exp_().nan_to_num_(nan=0.0)


def _blocks(q: Tensor, k: Tensor, bias: Tensor | None, how: Settings) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
    """Some queries at a time: which, their scores in float32, and what dropout makes of weights."""
    batch, heads, count = q.shape[:3]
    length = k.shape[2]
    step = max(1, _BLOCK // max(1, batch * heads * length))
    scale = _scale(q, how)
    source = torch.Generator().manual_seed(how.seed) if how.dropout else None
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        scores = q[:, :, part].float() @ k.float().transpose(-1, -2) * scale
        if bias is not None:
            scores += bias[:, :, part].float()
        if how.causal:
            ahead = torch.arange(length) > torch.arange(part.start, part.stop).unsqueeze(1)
            scores.masked_fill_(ahead, float("-inf"))
        kept = None
        if source is not None:
            keep = 1.0 - how.dropout
            kept = (torch.rand(scores.shape, generator=source) < keep).float()
            kept = kept / keep if keep else kept
        yield part, scores, kept
