"""Our own solutions of the twelve Triton Puzzles (github.com/srush/Triton-Puzzles): results and traffic."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", "3.9", reason="Triton 3.9 is not installed: pip install 'triton>=3.9' (Linux)")

import triton
import triton.language as tl

import fakegpu_lab as lab

pytestmark = pytest.mark.usefixtures("machine")


@triton.jit
def constant_add(x_ptr, z_ptr, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < n) + 10.0, mask=i < n)


@pytest.mark.parametrize(("n", "block"), [(32, 32), (200, 32)])
def test_1_and_2_add_a_constant(n, block):
    x = torch.rand(n, device="cuda")
    z = torch.empty_like(x)
    constant_add[(triton.cdiv(n, block),)](x, z, n, B=block)
    assert torch.equal(z, x + 10)


@triton.jit
def outer(x_ptr, y_ptr, z_ptr, n, m, BN: tl.constexpr, BM: tl.constexpr, MULTIPLY: tl.constexpr):
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    x = tl.load(x_ptr + i, mask=i < n)[None, :]
    y = tl.load(y_ptr + j, mask=j < m)[:, None]
    z = tl.maximum(x * y, 0.0) if MULTIPLY else x + y
    tl.store(z_ptr + j[:, None] * n + i[None, :], z, mask=(j[:, None] < m) & (i[None, :] < n))


@pytest.mark.parametrize(("n", "m", "multiply"), [(32, 32, False), (100, 90, False), (100, 90, True)])
def test_3_to_5_outer_sums_and_a_fused_outer_product(n, m, multiply):
    x, y = torch.randn(n, device="cuda"), torch.randn(m, device="cuda")
    z = torch.empty(m, n, device="cuda")
    outer[(triton.cdiv(n, 32), triton.cdiv(m, 32))](x, y, z, n, m, BN=32, BM=32, MULTIPLY=multiply)
    expected = torch.relu(x[None] * y[:, None]) if multiply else x[None] + y[:, None]
    assert torch.equal(z, expected)


@triton.jit
def fused_backward(x_ptr, y_ptr, dz_ptr, dx_ptr, n, m, BN: tl.constexpr, BM: tl.constexpr):
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    at = j[:, None] * n + i[None, :]
    inside = (j[:, None] < m) & (i[None, :] < n)
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + j, mask=j < m)[:, None]
    dz = tl.load(dz_ptr + at, mask=inside)
    tl.store(dx_ptr + at, tl.where(x * y > 0, y * dz, 0.0), mask=inside)


def test_6_the_gradient_of_the_fused_product():
    x = torch.randn(80, 100, device="cuda", requires_grad=True)
    y, dz = torch.randn(80, device="cuda"), torch.randn(80, 100, device="cuda")
    torch.relu(x * y[:, None]).backward(dz)
    dx = torch.empty_like(dz)
    fused_backward[(4, 3)](x.detach(), y, dz, dx, 100, 80, BN=32, BM=32)
    assert torch.allclose(dx, x.grad)


@triton.jit
def long_sum(x_ptr, z_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for begin in range(0, n, B):
        i = begin + tl.arange(0, B)
        total += tl.sum(tl.load(x_ptr + row * n + i, mask=i < n, other=0.0))
    tl.store(z_ptr + row, total)


def test_7_a_long_sum():
    x = torch.rand(4, 200, device="cuda")
    z = torch.empty(4, device="cuda")
    long_sum[(4,)](x, z, 200, B=32)
    assert torch.allclose(z, x.sum(1))


@triton.jit
def long_softmax(x_ptr, z_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    highest = -float("inf")
    total = 0.0
    for begin in range(0, n, B):
        i = begin + tl.arange(0, B)
        x = tl.load(x_ptr + row * n + i, mask=i < n, other=-float("inf"))
        new = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp2((highest - new) * 1.44269504) + tl.sum(tl.exp2((x - new) * 1.44269504), 0)
        highest = new
    for begin in range(0, n, B):
        i = begin + tl.arange(0, B)
        x = tl.load(x_ptr + row * n + i, mask=i < n)
        tl.store(z_ptr + row * n + i, tl.exp2((x - highest) * 1.44269504) / total, mask=i < n)


def test_8_softmax_of_a_row_that_is_longer_than_a_block():
    x = torch.randn(4, 200, device="cuda")
    z = torch.empty_like(x)
    with lab.record() as trace:
        long_softmax[(4,)](x, z, 200, B=32)
    assert torch.allclose(z, x.softmax(1), atol=1e-6)
    assert trace.kernels[0].access.bytes_loaded == 2 * x.nbytes  # two passes


@triton.jit
def scalar_attention(q_ptr, k_ptr, v_ptr, z_ptr, n, BQ: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BQ + tl.arange(0, BQ)
    q = tl.load(q_ptr + i, mask=i < n, other=0.0)
    highest = tl.full((BQ,), -float("inf"), tl.float32)
    total = tl.zeros((BQ,), tl.float32)
    z = tl.zeros((BQ,), tl.float32)
    for begin in range(0, n, BK):
        j = begin + tl.arange(0, BK)
        k = tl.load(k_ptr + j, mask=j < n, other=0.0)
        v = tl.load(v_ptr + j, mask=j < n, other=0.0)
        scores = tl.where(j[None, :] < n, q[:, None] * k[None, :], -float("inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp(scores - new[:, None])
        z = z * tl.exp(highest - new) + tl.sum(weights * v[None, :], 1)
        total = total * tl.exp(highest - new) + tl.sum(weights, 1)
        highest = new
    tl.store(z_ptr + i, z / total, mask=i < n)


def test_9_flash_attention_of_scalars():
    q, k, v = (torch.randn(200, device="cuda") for _ in range(3))
    z = torch.empty_like(q)
    scalar_attention[(triton.cdiv(200, 64),)](q, k, v, z, 200, BQ=64, BK=32)
    assert torch.allclose(z, (q[:, None] * k[None]).softmax(1) @ v, atol=1e-5)


@triton.jit
def convolution(x_ptr, k_ptr, z_ptr, H, W, KH: tl.constexpr, KW: tl.constexpr, B: tl.constexpr):
    batch = tl.program_id(0)
    i = tl.arange(0, B)[:, None]
    j = tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for a in tl.static_range(KH):
        for b in tl.static_range(KW):
            weight = tl.load(k_ptr + a * KW + b)
            x = tl.load(x_ptr + batch * H * W + (i + a) * W + j + b, mask=(i + a < H) & (j + b < W), other=0.0)
            total += weight * x
    tl.store(z_ptr + batch * H * W + i * W + j, total, mask=(i < H) & (j < W))


def test_10_a_convolution():
    x, k = torch.rand(4, 8, 8, device="cuda"), torch.rand(4, 4, device="cuda")
    z = torch.empty_like(x)
    convolution[(4,)](x, k, z, 8, 8, KH=4, KW=4, B=8)
    padded = torch.nn.functional.pad(x[:, None], (0, 3, 0, 3))
    assert torch.allclose(z, torch.nn.functional.conv2d(padded, k[None, None])[:, 0], atol=1e-5)


@triton.jit
def batched_product(x_ptr, y_ptr, z_ptr, n, B: tl.constexpr):
    batch = tl.program_id(2) * n * n
    i = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    j = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for begin in range(0, n, B):
        k = begin + tl.arange(0, B)
        x = tl.load(x_ptr + batch + i * n + k[None, :], mask=(i < n) & (k[None, :] < n), other=0.0)
        y = tl.load(y_ptr + batch + k[:, None] * n + j, mask=(k[:, None] < n) & (j < n), other=0.0)
        total += tl.dot(x, y)
    tl.store(z_ptr + batch + i * n + j, total, mask=(i < n) & (j < n))


def test_11_a_batched_product():
    x, y = torch.rand(3, 50, 50, device="cuda"), torch.rand(3, 50, 50, device="cuda")
    z = torch.empty_like(x)
    batched_product[(4, 4, 3)](x, y, z, 50, B=16)
    assert torch.allclose(z, x @ y, atol=1e-4)


@triton.jit
def quantised_product(scale_ptr, offset_ptr, weight_ptr, x_ptr, z_ptr, N, K, GROUP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    j = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    total = tl.zeros((B, B), tl.float32)
    for begin in range(0, K, B):
        k = begin + tl.arange(0, B)
        packed = tl.load(weight_ptr + i * (K // 8) + k[None, :] // 8)
        weight = (packed >> ((k[None, :] % 8) * 4)) & 15
        scale = tl.load(scale_ptr + i * (K // GROUP) + k[None, :] // GROUP)
        offset = tl.load(offset_ptr + i * (K // GROUP) + k[None, :] // GROUP)
        x = tl.load(x_ptr + k[:, None] * N + j)
        total += tl.dot(scale * (weight - offset).to(tl.float32), x)
    tl.store(z_ptr + i * N + j, total)


def test_12_a_product_with_weights_of_four_bits():
    rows, inner, columns, group = 32, 64, 32, 8
    weight = torch.randint(0, 16, (rows, inner))
    packed = (weight.reshape(rows, -1, 8) << (4 * torch.arange(8))).sum(-1)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed).int()
    scale, offset = torch.rand(rows, inner // group), torch.randint(0, 16, (rows, inner // group)).int()
    x = torch.rand(inner, columns)
    expected = (scale.repeat_interleave(group, 1) * (weight - offset.repeat_interleave(group, 1))) @ x
    z = torch.empty(rows, columns, device="cuda")
    on_device = [one.to("cuda") for one in (scale, offset, packed, x)]
    quantised_product[(2, 2)](*on_device, z, columns, inner, GROUP=group, B=16)
    assert torch.allclose(z.cpu(), expected, atol=1e-3)
