"""What CUDA has kernels for and the CPU has not: dtypes, products with a float32 result; and kernels that conjugate."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F


def halves(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.avg_pool3d(x.view(1, 2, 4, 4, 4), 2),
        lambda x: F.interpolate(x.view(1, 2, 8, 8), size=(4, 4), mode="bilinear", antialias=True),
        lambda x: F.interpolate(x.view(1, 2, 8, 8), size=(4, 4), mode="bicubic", antialias=True),
        lambda x: F.multi_margin_loss(x.view(16, 8), torch.arange(16, device=x.device) % 8),
        lambda x: F.multilabel_margin_loss(x.view(16, 8), torch.arange(8, device=x.device).expand(16, 8)),
    ],
)
def test_half_precision_is_computed_in_float32_and_rounded_once(machine: Any, call: Any, dtype: torch.dtype) -> None:
    x = halves(128, dtype=dtype)
    wide, there = x.float().requires_grad_(), x.cuda().requires_grad_()
    expected, actual = call(wide), call(there)
    expected.sum().backward()
    actual.sum().backward()
    assert actual.is_cuda
    assert actual.dtype is there.grad.dtype is dtype
    assert torch.equal(actual.cpu(), expected.to(dtype))
    assert torch.equal(there.grad.cpu(), wide.grad.to(dtype))


def test_half_precision_in_place_and_into_out(machine: Any) -> None:
    x = halves(2, 4, 4, 4).cuda()
    out = torch.empty(0, dtype=torch.float16, device="cuda")
    pooled = torch.ops.aten.avg_pool3d.out(x, [2, 2, 2], out=out)
    assert pooled is out
    assert torch.equal(out.cpu(), F.avg_pool3d(x.cpu().float(), 2).half())
    y = x.abs() + 1
    expected = torch.special.polygamma(1, y.cpu().float()).half()
    assert y.polygamma_(1) is y
    assert torch.equal(y.cpu(), expected)
    assert torch.equal(torch.round(x, decimals=1).cpu(), torch.round(x.cpu().float(), decimals=1).half())


def test_histc_counts_integers(machine: Any) -> None:
    x = torch.tensor([0, 1, 1, 2, 7, 7, 7, 9], device="cuda")
    counts = torch.histc(x, bins=5, min=0, max=10)
    assert counts.dtype is torch.int64
    assert counts.tolist() == [3, 1, 0, 3, 1]


def test_nansum_of_complex_numbers(machine: Any) -> None:
    x = torch.tensor([[1 + 2j, complex("nan")], [3j, complex(1, float("nan"))]], device="cuda")
    assert x.nansum().item() == 1 + 5j
    assert x.nansum(0, keepdim=True).tolist() == [[1 + 5j, 0]]


def test_kernels_that_conjugate_within(machine: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 3, dtype=torch.complex64, generator=generator)
    b = torch.randn(2, 3, dtype=torch.complex64, generator=generator)
    lu, pivots = torch.linalg.lu_factor(a)
    for adjoint in (False, True):  # from the right: LU.cpp solves with the conjugate transposes
        here = torch.linalg.lu_solve(lu, pivots, b, left=False, adjoint=adjoint)
        there = torch.linalg.lu_solve(lu.cuda(), pivots.cuda(), b.cuda(), left=False, adjoint=adjoint)
        assert not there.is_conj()
        torch.testing.assert_close(there.cpu(), here)
    torch.testing.assert_close(torch.linalg.pinv(b.cuda()).cpu(), torch.linalg.pinv(b))
    leaf = b.cuda().requires_grad_()
    torch.linalg.pinv(leaf).abs().sum().backward()
    leaf_here = b.clone().requires_grad_()
    torch.linalg.pinv(leaf_here).abs().sum().backward()
    torch.testing.assert_close(leaf.grad.cpu(), leaf_here.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_ctc_loss_without_a_batch_takes_lengths_without_dimensions(machine, where):
    log_probs = torch.randn(10, 5).log_softmax(-1)
    targets = torch.tensor([1, 2, 3])
    lengths = torch.tensor(10, device=where), torch.tensor(3, device=where)
    loss = F.ctc_loss(log_probs.cuda(), targets.cuda(), *lengths)
    torch.testing.assert_close(loss.cpu(), F.ctc_loss(log_probs, targets, torch.tensor(10), torch.tensor(3)))
    with pytest.raises(RuntimeError, match=r"^target_lengths must be integral$"):
        F.ctc_loss(log_probs.cuda(), targets.cuda(), lengths[0], lengths[1].float())


def test_statistics_of_ranks_with_the_same_number_of_values(machine: Any) -> None:
    source, means, deviations = torch.randn(4, 3, device="cuda"), torch.rand(2, 3).cuda(), torch.rand(2, 3).cuda() + 1
    counts = torch.full((2,), 5.0, device="cuda")
    expected = torch.batch_norm_gather_stats_with_counts(source, means, deviations, None, None, 0.1, 1e-5, counts)
    got = torch.batch_norm_gather_stats(source, means, deviations, None, None, 0.1, 1e-5, 5)
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_gelu_in_a_product_s_epilogue_is_the_tanh_approximation(machine: Any) -> None:
    bias, a, b = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    expected = F.gelu(torch.addmm(bias, a, b, alpha=2), approximate="tanh")
    on_gpu = [tensor.cuda() for tensor in (bias, a, b)]
    torch.testing.assert_close(torch._addmm_activation(*on_gpu, alpha=2, use_gelu=True).cpu(), expected)
    out = torch.empty(3, 4, device="cuda")
    assert torch._addmm_activation(*on_gpu, alpha=2, use_gelu=True, out=out) is out
    torch.testing.assert_close(out.cpu(), expected)
