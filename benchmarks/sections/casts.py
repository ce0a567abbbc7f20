"""What autocast makes of each op: the dtypes of results and of gradients, by op and autocast dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from recording.common import DEVICE, attempt
from torch import nn
from torch.nn import functional as F  # noqa: N812 - its name everywhere

Cast = Callable[[torch.Tensor], torch.Tensor]


def _ops() -> dict[str, Cast]:
    target = torch.arange(4, device=DEVICE)
    single = torch.ones(4, 4, device=DEVICE)
    linear, norm = nn.Linear(4, 4).to(DEVICE), nn.LayerNorm(4).to(DEVICE)
    batch, rnn = nn.BatchNorm1d(4).to(DEVICE), nn.LSTM(4, 4).to(DEVICE)
    kernel = torch.ones(1, 1, 3, 3, device=DEVICE)
    return {
        "matmul": lambda x: x @ x,
        "addmm": lambda x: torch.addmm(single, x, x),
        "bmm": lambda x: torch.bmm(x[None], x[None]),
        "mv": lambda x: x @ x[0],
        "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
        "linear": linear,
        "conv2d": lambda x: F.conv2d(x[None, None], kernel),
        "conv_transpose2d": lambda x: F.conv_transpose2d(x[None, None], kernel),
        "lstm": lambda x: rnn(x[:, None])[0],
        "sdpa": lambda x: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        "prelu": lambda x: F.prelu(x, single[0, :1]),
        "exp": lambda x: x.exp(),
        "log": lambda x: x.abs().log(),
        "pow": lambda x: x**3,
        "rsqrt": lambda x: x.abs().rsqrt(),
        "sum": lambda x: x.sum(),
        "mean": lambda x: x.mean(),
        "prod": lambda x: x.prod(),
        "cumsum": lambda x: x.cumsum(0),
        "norm": lambda x: x.norm(),
        "softmax": lambda x: x.softmax(0),
        "log_softmax": lambda x: x.log_softmax(0),
        "layer_norm": norm,
        "group_norm": lambda x: F.group_norm(x, 2),
        "batch_norm": batch,
        "cross_entropy": lambda x: F.cross_entropy(x, target),
        "mse_loss": lambda x: F.mse_loss(x, single),
        "bce_with_logits": lambda x: F.binary_cross_entropy_with_logits(x, single),
        "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), single),
        "cosine_similarity": lambda x: F.cosine_similarity(x, single),
        "cdist": lambda x: torch.cdist(x, single),
        "relu": lambda x: x.relu(),
        "gelu": F.gelu,
        "add": lambda x: x + single,
        "add_half": lambda x: x.half() + x,
        "cat": lambda x: torch.cat([x, single]),
        "stack": lambda x: torch.stack([x, single]),
        "dot": lambda x: torch.dot(x[0], single[0]),
        "cross": lambda x: torch.linalg.cross(x[:, :3], single[:, :3]),
        "bilinear": lambda x: F.bilinear(x, x, torch.ones(2, 4, 4, device=DEVICE)),
        "addcmul": lambda x: torch.addcmul(x, single, single),
        "atan2": lambda x: torch.atan2(x, single),
        "grid_sample": lambda x: F.grid_sample(x[None, None], single.view(1, 2, 4, 2)),
        "scatter_add": lambda x: x.scatter_add(0, target[None], single),
        "index_put": lambda x: x.clone().index_put((target,), single),
        "erfinv": lambda x: x.erfinv(),
        "embedding": lambda x: F.embedding(target, x),
        "dropout": lambda x: F.dropout(x, 0.5),
        "in_place": lambda x: x.clone().mul_(single),
        "to_float": lambda x: x.float(),
    }


def _dtypes(op: Cast, given: torch.dtype, cast: torch.dtype) -> dict[str, str]:
    values = torch.linspace(0.1, 1.0, 16, device=DEVICE).view(4, 4).to(given)
    x = values.requires_grad_()
    with torch.autocast("cuda", cast):
        y = op(x)
    found = {"result": str(y.dtype)}
    if y.requires_grad:
        y.float().sum().backward()
        found["gradient"] = str(x.grad.dtype) if x.grad is not None else "none"
    return found


def record(quick: bool) -> dict[str, Any]:
    """Record all ops; each is tiny."""
    return {
        f"{name}_{str(given)[6:]}_under_{str(cast)[6:]}": attempt(lambda op=op, g=given, c=cast: _dtypes(op, g, c))
        for cast in (torch.float16, torch.bfloat16)
        for given in (torch.float32, cast)
        for name, op in _ops().items()
    }
