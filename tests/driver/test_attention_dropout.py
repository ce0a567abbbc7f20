"""Fused attention: the masks of dropout, where seed and offset are, and the masks of torch.nn.attention.bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from fakegpu_lab.hardware.philox import curand

pytestmark = pytest.mark.usefixtures("machine")

aten: Any = torch.ops.aten


def operands(dtype: torch.dtype = torch.float32, rows: int = 20) -> list[torch.Tensor]:
    return [torch.rand(2, 3, rows, 8, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]


def of_one_thread(seed: int, offset: int) -> torch.Tensor:
    """The numbers that the efficient kernel compares with the dropout."""
    numbers = np.empty(2 * 3 * 20 * 20, np.float32)
    curand.consecutive(numbers, seed, offset)
    return torch.from_numpy(numbers).view(2, 3, 20, 20).cuda()


def test_the_efficient_kernel_draws_a_cards_mask() -> None:
    query, key, value = operands()
    torch.manual_seed(42)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        out = F.scaled_dot_product_attention(query, key, value, dropout_p=0.3)
    assert torch.cuda.default_generators[0].get_offset() == 2 * 3 * 20 * 20  # one number for each score
    numbers = of_one_thread(42, 0)
    mask = (numbers > 0.3).float()
    expected = aten._scaled_dot_product_attention_math(query, key, value, dropout_p=0.3, dropout_mask=mask)[0]
    torch.testing.assert_close(out, expected)
    towards = torch.rand_like(out)
    for found, wanted in zip(
        *(torch.autograd.grad(result, (query, key, value), towards) for result in (out, expected)), strict=True
    ):
        torch.testing.assert_close(found, wanted)


def test_the_numbers_of_a_mask_are_one_stream_of_one_thread() -> None:
    whole, part = np.empty(70_000, np.float32), np.empty(66_000, np.float32)
    curand.consecutive(whole, 42, 8)
    curand.consecutive(part, 42, 13)
    assert (whole[5 : 5 + len(part)] == part).all()
    first = curand.uniform(curand.words(42, 2, 0, 1), 4)
    assert whole[:4].tolist() == [number[0] for number in first]


def test_a_dropout_mask_is_no_result() -> None:
    query, key, value = operands(torch.float16)
    with pytest.raises(NotImplementedError, match="that returns its dropout mask"):
        aten._scaled_dot_product_flash_attention(query, key, value, 0.5, False, True)
    with pytest.raises(NotImplementedError, match="_fill_mem_eff_dropout_mask_"):
        torch._fill_mem_eff_dropout_mask_(torch.empty(2, 3, 20, 20, device="cuda"), 0.3, 42, 0)  # type: ignore[attr-defined]


def test_seed_and_offset_are_on_the_device_while_a_graph_is_captured() -> None:
    query, key, value = (x.detach() for x in operands())
    kernel = aten._scaled_dot_product_efficient_attention
    assert not kernel(query, key, value, None, True, 0.3)[2].is_cuda
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _, seed, offset = kernel(query, key, value, None, True, 0.3)
    assert seed.is_cuda
    graph.replay()
    numbers = of_one_thread(seed.item(), offset.item())
    expected = aten._scaled_dot_product_attention_math(
        query, key, value, dropout_p=0.3, dropout_mask=(numbers > 0.3).float()
    )[0]
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("keys", [7, 12])
def test_a_causal_bias_is_the_mask_that_it_stands_for(dtype: torch.dtype, bias: Any, keys: int) -> None:
    query = torch.rand(1, 2, 7, 16, device="cuda", dtype=dtype)
    key = torch.rand(1, 2, keys, 16, device="cuda", dtype=dtype, requires_grad=True)
    out = F.scaled_dot_product_attention(query, key, key, attn_mask=bias(7, keys))
    expected = F.scaled_dot_product_attention(query, key, key, attn_mask=bias(7, keys)._materialize("cuda"))
    torch.testing.assert_close(out, expected)
    grads = [torch.autograd.grad(result.sum(), key)[0] for result in (out, expected)]
    torch.testing.assert_close(*grads, atol=3e-3, rtol=1e-2)


def test_the_efficient_kernel_takes_no_grouped_heads() -> None:
    query, (key, value) = operands(torch.float16)[0], (x[:, :1] for x in operands(torch.float16)[:2])
    warned = pytest.warns(UserWarning, match="same num_heads")
    refused = pytest.raises(RuntimeError, match=r"^No available kernel")
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION), warned, refused:
        F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
