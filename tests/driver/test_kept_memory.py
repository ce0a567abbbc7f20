"""What an op keeps for backward, and takes while it goes backward, is what its CUDA kernel keeps and takes.

Bytes as `memory_allocated` counts them, derived from derivatives.yaml (what is saved) and from the CUDA sources (what
is allocated); each row says which.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

HALF, FLOAT = torch.float16, torch.float32


def up(*sizes: int) -> int:
    """The allocator rounds each storage up to 512 bytes."""
    return sum(-(-size // 512) * 512 for size in sizes)


def trained(*shape: int, dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype).requires_grad_()


class Row(NamedTuple):
    """Bytes that are there after forward, besides the inputs; and the peak of backward, besides what was there then."""

    name: str
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    call: Callable[..., torch.Tensor]
    kept: int
    backward: int
    why: str


N = 64 * 1024 * 4
IMAGE = 8 * 64 * 16 * 16 * 4


def image(dtype: torch.dtype = FLOAT) -> torch.Tensor:
    return trained(8, 64, 16, 16, dtype=dtype)


def indices(n: int, below: int) -> torch.Tensor:
    return torch.arange(n, device="cuda") % below


ROWS = [
    Row("relu", lambda: (trained(64, 1024),), F.relu, N, N, "the result is what backward needs"),
    Row("gelu", lambda: (trained(64, 1024),), F.gelu, N, N, "the input is saved, which is there anyway"),
    Row("silu", lambda: (trained(64, 1024),), F.silu, N, N, "silu_backward is one kernel (Activation.cpp)"),
    Row("mish", lambda: (trained(64, 1024),), F.mish, N, N, "mish_backward is one kernel"),
    Row("dropout", lambda: (trained(64, 1024),), lambda x: F.dropout(x, 0.5), N + N // 4, N,
        "native_dropout keeps a bool for each element (Dropout.cu)"),
    Row("softmax", lambda: (trained(64, 1024),), lambda x: F.softmax(x, -1), N, N, "the result is saved"),
    Row("cross_entropy", lambda: (trained(64, 1024), indices(64, 1024)), F.cross_entropy, N + up(4, 4), 2 * N - up(4),
        "log_softmax's result, the loss and its total weight; nll's gradient, then log_softmax's; the loss's own goes"),
    Row("layer_norm", lambda: (trained(64, 1024), trained(1024), trained(1024)),
        lambda x, w, b: F.layer_norm(x, (1024,), w, b), N + 2 * up(64 * 4), N + 2 * up(1024 * 4), "mean and rstd"),
    Row("layer_norm, half", lambda: (trained(1024, 64, dtype=HALF), trained(64, dtype=HALF), trained(64, dtype=HALF)),
        lambda x, w, b: F.layer_norm(x, (64,), w, b), N // 2 + 2 * up(1024 * 4), N // 2 + 2 * up(64 * 2),
        "mean and rstd in float32, acc_type (layer_norm_kernel.cu)"),
    Row("rms_norm", lambda: (trained(64, 1024), trained(1024)), lambda x, w: F.rms_norm(x, (1024,), w),
        N + up(64 * 4), N + up(1024 * 4), "_fused_rms_norm keeps rstd"),
    Row("rms_norm, half", lambda: (trained(1024, 64, dtype=HALF), trained(64, dtype=HALF)),
        lambda x, w: F.rms_norm(x, (64,), w), N // 2 + up(1024 * 4), N // 2 + up(64 * 2), "rstd in float32"),
    Row("group_norm", lambda: (image(), trained(64), trained(64)), lambda x, w, b: F.group_norm(x, 4, w, b),
        IMAGE + 2 * up(8 * 4 * 4), IMAGE + 2 * up(64 * 4), "mean and rstd a group"),
    Row("batch_norm", lambda: (image(), trained(64), trained(64), torch.zeros(64).cuda(), torch.ones(64).cuda()),
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, training=True), IMAGE + 2 * up(64 * 4),
        IMAGE + 2 * up(64 * 4), "save_mean and save_invstd; cuDNN's reserve space is empty for NCHW"),
    Row("max_pool2d", lambda: (image(),), lambda x: F.max_pool2d(x, 2), IMAGE // 4 + IMAGE // 2, IMAGE,
        "the indices are int64 (DilatedMaxPool2d.cu)"),
    Row("linear", lambda: (trained(64, 1024), trained(512, 1024), trained(512)), F.linear, 64 * 512 * 4,
        N + 512 * 1024 * 4 + 512 * 4, "input and weight are saved"),
    Row("embedding, few indices", lambda: (indices(3072, 1000), trained(1000, 64)), F.embedding, 3072 * 64 * 4,
        up(1000 * 64 * 4), "up to 3072 indices: one kernel, no sort (Embedding.cu)"),
    Row("embedding, many indices", lambda: (indices(4096, 1000), trained(1000, 64)), F.embedding, 4096 * 64 * 4,
        up(1000 * 64 * 4, 4096 * 8, 4096 * 8, 4096 * 8, 1000 * 8, 1000 * 8, 1409 * 8, 8, 8, 1409 * 64 * 4),
        "sorted and original indices, segments, and 4096 / 10 + 1000 partial sums (EmbeddingBackwardKernel.cu)"),
    Row("attention, float32", lambda: tuple(trained(2, 4, 64, 32) for _ in range(3)),
        F.scaled_dot_product_attention, 65536 + 2 * 4 * 64 * 4, 4 * 65536 - 2048,
        "efficient: the output and logsumexp, which goes; the gradients lie as (B, S, H, D): each leaf clones its own"),
    Row("attention, half", lambda: tuple(trained(2, 4, 64, 32, dtype=HALF) for _ in range(3)),
        F.scaled_dot_product_attention, 32768 + 2 * 4 * 64 * 4 + 2 * 512,
        3 * 32768 + 2 * 32768 + 2 * 4 * 128 * 4 * 33,
        "flash: output, logsumexp, rng_state and its twin; dOut and out as (B, S, H, D), then float32 sums of dQ"),
]  # fmt: skip


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_kept(row: Row) -> None:
    inputs = row.inputs()
    torch.ones(1, 1, device="cuda") @ torch.ones(1, 1, device="cuda")  # cuBLAS's workspace
    before = torch.cuda.memory_allocated()
    out = row.call(*inputs)
    assert torch.cuda.memory_allocated() - before == row.kept
    given = torch.ones_like(out)
    there = torch.cuda.memory_allocated() - given.nbytes  # backward drops it ...
    torch.cuda.reset_peak_memory_stats()
    there += given.nbytes  # ... but it is ours
    out.backward(given)
    assert torch.cuda.max_memory_allocated() - there == row.backward
    del out, given
    grads = sum(up(t.grad.nbytes) for t in inputs if t.grad is not None)
    assert torch.cuda.memory_allocated() - before == grads


@pytest.mark.usefixtures("machine")
def test_gradients_accumulate_in_place() -> None:
    """AccumulateGrad takes the first gradient as it is, and adds later ones to it (accumulate_grad.h)."""
    weight = trained(64, 1024)

    def peak() -> int:
        loss = (weight * 1.0).sum()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        loss.backward()
        return torch.cuda.max_memory_allocated() - before

    first = peak()
    taken: Any = weight.grad
    second = peak()
    assert weight.grad is taken
    assert first == second  # the new gradient is there once, beside the old one, which was there before
    weight.grad = None
    assert peak() == first
    weight.grad.zero_()
    assert peak() == first
