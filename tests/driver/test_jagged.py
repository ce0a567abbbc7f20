"""Jagged nested tensors: attention over them makes no square matrix."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

LENGTHS = (3, 5, 2)
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION


def _sequences(width=16, dtype=torch.float16):
    torch.manual_seed(0)
    return [torch.randn(length, 2 * width).to(dtype) for length in LENGTHS]


def _heads(jagged):
    return jagged.unflatten(-1, [2, -1]).transpose(1, 2)


@pytest.mark.parametrize(("backend", "dtype"), [(FLASH, torch.float16), (EFFICIENT, torch.float32)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_over_jagged_tensors(machine, backend, dtype, causal):
    rows = _sequences(dtype=dtype)
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged, device="cuda", requires_grad=True)
    with sdpa_kernel(backend):
        out = attention(_heads(jagged), _heads(jagged), _heads(jagged), is_causal=causal)
    out.values().float().pow(2).sum().backward()
    for row, got, grad in zip(rows, out.transpose(1, 2).unbind(), jagged.grad.unbind(), strict=True):
        x = row.float().requires_grad_()
        heads = x.unflatten(-1, [2, -1]).transpose(0, 1)[None]
        expected = attention(heads, heads, heads, is_causal=causal)
        expected.pow(2).sum().backward()
        torch.testing.assert_close(got.cpu().float(), expected[0].transpose(0, 1), rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(grad.cpu().float(), x.grad, rtol=1e-2, atol=1e-2)


def test_attention_over_jagged_tensors_makes_no_square_matrix(machine):
    packed = torch.randn(4096, 2, 16, device="cuda", dtype=torch.float16)
    ends = torch.tensor([0, 1024, 4096], dtype=torch.int32, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out, sums, *_ = torch.ops.aten._flash_attention_forward(
        packed, packed, packed, ends, ends, 3072, 3072, 0.0, False, False
    )
    assert (out.shape, sums.shape, sums.dtype) == (packed.shape, (2, 4096), torch.float32)
    assert torch.cuda.max_memory_allocated() - before <= packed.nbytes + sums.nbytes + 4 * 512


def test_queries_that_end_with_their_keys(machine):
    """Flash aligns a causal mask with the last key; the memory-efficient kernel as it is told."""
    q, k = torch.randn(2, 2, 16, dtype=torch.float16), torch.randn(5, 2, 16, dtype=torch.float16)
    of_q, of_k = (torch.tensor([0, n], dtype=torch.int32, device="cuda") for n in (2, 5))
    mask = torch.ones(2, 5, dtype=torch.bool)
    heads = [t.float().transpose(0, 1)[None] for t in (q, k, k)]
    aten = torch.ops.aten
    out = aten._flash_attention_forward(q.cuda(), k.cuda(), k.cuda(), of_q, of_k, 2, 5, 0.0, True, False)[0]
    expected = attention(*heads, attn_mask=mask.tril(3))[0].transpose(0, 1)
    torch.testing.assert_close(out.cpu().float(), expected, rtol=2e-3, atol=2e-3)
    for kind, offset in ((1, 0), (2, 3)):
        args = [t.cuda()[None] for t in (q, k, k)]
        out = aten._efficient_attention_forward(*args, None, of_q, of_k, 2, 5, 0.0, kind)[0]
        expected = attention(*heads, attn_mask=mask.tril(offset))[0].transpose(0, 1)
        torch.testing.assert_close(out[0].cpu().float(), expected, rtol=2e-3, atol=2e-3)
