"""What autograd keeps: bytes over the result after a forward, the forward's and the backward's peaks, op by op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from recording.common import DEVICE, attempt, settle
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere

Forward = Callable[[torch.Tensor], torch.Tensor]


def _ops(rows: int, columns: int) -> dict[str, Forward]:
    """Functions of a rows × columns tensor; what they take beside it is made here, before anything is counted."""

    def ones(*shape: int) -> torch.Tensor:
        return torch.ones(*shape, device=DEVICE, requires_grad=True)

    other, row, wide = ones(rows, columns), ones(columns), ones(4 * columns, columns)
    square, target = ones(columns, columns), torch.zeros(rows, dtype=torch.long, device=DEVICE)
    tokens = torch.zeros(rows, dtype=torch.long, device=DEVICE)
    mask = torch.zeros(rows, columns, dtype=torch.bool, device=DEVICE)
    layer, batch, group = nn.LayerNorm(columns), nn.BatchNorm1d(columns), nn.GroupNorm(4, columns)
    filters, lstm = nn.Conv1d(1, 4, 3), nn.LSTM(columns, 32)
    for module in (layer, batch, group, filters, lstm):
        module.to(DEVICE)

    def heads(x: torch.Tensor) -> torch.Tensor:
        return x.view(1, rows, 4, columns // 4).transpose(1, 2)

    return {
        "add": lambda x: x + other,
        "mul": lambda x: x * other,
        "mul_scalar": lambda x: x * 2.0,
        "div": lambda x: x / other,
        "square": lambda x: x * x,
        "pow": lambda x: x**3,
        "sqrt": lambda x: x.sqrt(),
        "exp": lambda x: x.exp(),
        "log": lambda x: x.log(),
        "sin": lambda x: x.sin(),
        "abs": lambda x: x.abs(),
        "clamp": lambda x: x.clamp(0, 1),
        "maximum": lambda x: torch.maximum(x, other),
        "where": lambda x: torch.where(mask, x, other),
        "masked_fill": lambda x: x.masked_fill(mask, 0.0),
        "lerp": lambda x: torch.lerp(x, other, 0.5),
        "addcmul": lambda x: torch.addcmul(x, other, other),
        "relu": lambda x: x.relu(),
        "relu_in_place": lambda x: (x * 1.0).relu_(),
        "leaky_relu": F.leaky_relu,
        "elu": F.elu,
        "sigmoid": lambda x: x.sigmoid(),
        "tanh": lambda x: x.tanh(),
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        "silu_in_place": lambda x: F.silu(x * 1.0, inplace=True),
        "softplus": F.softplus,
        "hardswish": F.hardswish,
        "mish": F.mish,
        "glu": F.glu,
        "prelu": lambda x: F.prelu(x, row[:1]),
        "dropout": lambda x: F.dropout(x, 0.5),
        "softmax": lambda x: x.softmax(-1),
        "log_softmax": lambda x: x.log_softmax(-1),
        "logsumexp": lambda x: x.logsumexp(-1),
        "cross_entropy": lambda x: F.cross_entropy(x, target),
        "nll_loss": lambda x: F.nll_loss(x, target),
        "mse_loss": lambda x: F.mse_loss(x, other),
        "l1_loss": lambda x: F.l1_loss(x, other),
        "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, other),
        "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, other),
        "kl_div": lambda x: F.kl_div(x, other, reduction="batchmean"),
        "cosine_similarity": lambda x: F.cosine_similarity(x, other),
        "layer_norm": layer,
        "batch_norm": batch,
        "group_norm": group,
        "rms_norm": lambda x: F.rms_norm(x, (columns,), row),
        "normalize": F.normalize,
        "norm": lambda x: x.norm(),
        "sum": lambda x: x.sum(),
        "mean": lambda x: x.mean(0),
        "var": lambda x: x.var(-1),
        "amax": lambda x: x.amax(-1),
        "max": lambda x: x.max(-1).values,
        "cumsum": lambda x: x.cumsum(0),
        "prod": lambda x: x.prod(-1),
        "sort": lambda x: x.sort(-1).values,
        "topk": lambda x: x.topk(3).values,
        "linear": lambda x: F.linear(x, wide),
        "linear_bias": lambda x: F.linear(x, square, row),
        "matmul": lambda x: x @ square,
        "bmm": lambda x: torch.bmm(x[None], square[None]),
        "einsum": lambda x: torch.einsum("ij,jk->ik", x, square),
        "conv1d": lambda x: filters(x[:, None]),
        "max_pool1d": lambda x: F.max_pool1d(x[:, None], 2),
        "avg_pool1d": lambda x: F.avg_pool1d(x[:, None], 2),
        "max_pool2d": lambda x: F.max_pool2d(x[None, None], 2),
        "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
        "lstm": lambda x: lstm(x[:, None])[0],
        "embedding": lambda x: F.embedding(tokens, x),
        "embedding_bag": lambda x: F.embedding_bag(tokens[None], x),
        "gather": lambda x: x.gather(0, tokens[:1, None]),
        "index": lambda x: x[tokens],
        "index_select": lambda x: x.index_select(0, tokens),
        "scatter_add": lambda x: x.scatter_add(0, tokens[:, None].expand_as(x), other),
        "cat": lambda x: torch.cat([x, other]),
        "stack": lambda x: torch.stack([x, other]),
        "transpose": lambda x: x.t().contiguous(),
        "expand": lambda x: x[None].expand(4, -1, -1).contiguous(),
        "slice": lambda x: x[:, ::2].clone(),
        "view": lambda x: x.view(-1),
        "pad": lambda x: F.pad(x, (1, 1)),
        "roll": lambda x: x.roll(1, 0),
        "half": lambda x: x.half(),
        "sdpa": lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), is_causal=True),
        "sdpa_half": lambda x: F.scaled_dot_product_attention(*[heads(x.half())] * 3, is_causal=True),
        "sdpa_mask": lambda x: F.scaled_dot_product_attention(
            heads(x), heads(x), heads(x), attn_mask=torch.ones(rows, rows, dtype=torch.bool, device=DEVICE)
        ),
    }


def _measure(forward: Forward, rows: int, columns: int) -> dict[str, int]:
    x = torch.full((rows, columns), 0.5, device=DEVICE, requires_grad=True)
    forward(x)  # workspaces are there before anything is counted
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    y = forward(x)
    after, peak = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    gradient = torch.ones_like(y)
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    y.backward(gradient)
    torch.cuda.synchronize()
    return {
        "kept": after - before,
        "forward_peak": peak - before,
        "backward_peak": torch.cuda.max_memory_allocated() - start,
        "after_backward": torch.cuda.memory_allocated() - start,
    }


def record(quick: bool) -> dict[str, Any]:
    """Record all ops, at one shape in `quick` and at three else."""
    found: dict[str, Any] = {}
    for rows, columns in ((64, 128),) if quick else ((64, 128), (256, 1024), (1000, 96)):
        settle()
        for name, forward in _ops(rows, columns).items():
            found[f"{name}_{rows}x{columns}"] = attempt(lambda f=forward, r=rows, c=columns: _measure(f, r, c))
    settle()
    return found
