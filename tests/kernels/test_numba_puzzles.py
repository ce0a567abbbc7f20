"""Fourteen small kernels after the exercises of GPU-Puzzles (Sasha Rush): right results, and no races."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab

pytest.importorskip("numba", reason="the extra `numba` is not installed")
pytest.importorskip("greenlet", reason="the extra `numba` is not installed")

from numba import cuda, float32

pytestmark = pytest.mark.usefixtures("machine")

TILE = 8
BLOCK = 8
WIDE = 16  # numba takes only a constant as the size of a shared array


@cuda.jit
def map_(out, a):
    i = cuda.threadIdx.x
    out[i] = a[i] + 10


@cuda.jit
def zip_(out, a, b):
    i = cuda.threadIdx.x
    out[i] = a[i] + b[i]


@cuda.jit
def guard(out, a, size):
    i = cuda.threadIdx.x
    if i < size:
        out[i] = a[i] + 10


@cuda.jit
def map_2d(out, a, size):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < size and y < size:
        out[y, x] = a[y, x] + 10


@cuda.jit
def broadcast(out, column, row, size):
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if x < size and y < size:
        out[y, x] = column[y, 0] + row[0, x]


@cuda.jit
def blocks(out, a, size):
    i = cuda.grid(1)
    if i < size:
        out[i] = a[i] + 10


@cuda.jit
def blocks_2d(out, a, size):
    x, y = cuda.grid(2)
    if x < size and y < size:
        out[y, x] = a[y, x] + 10


@cuda.jit
def shared(out, a, size):
    tile = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if i < size:
        tile[t] = a[i]
    cuda.syncthreads()
    if i < size:
        out[i] = tile[t] + 10


@cuda.jit
def pooling(out, a, size):
    tile = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    if i < size:
        tile[t] = a[i]
    cuda.syncthreads()
    if i < size:
        total = tile[t]
        if t >= 1:
            total += tile[t - 1]
        if t >= 2:
            total += tile[t - 2]
        out[i] = total


@cuda.jit
def dot(out, a, b, size):
    products = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    products[t] = a[t] * b[t] if t < size else 0
    cuda.syncthreads()
    if t == 0:
        total = float32(0)
        for k in range(size):
            total += products[k]
        out[0] = total


@cuda.jit
def convolution(out, a, kernel, size, width):
    tile = cuda.shared.array(WIDE, float32)
    weights = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    tile[t] = a[i] if i < size else 0
    tile[BLOCK + t] = a[i + BLOCK] if i + BLOCK < size else 0
    if t < width:
        weights[t] = kernel[t]
    cuda.syncthreads()
    if i < size:
        total = float32(0)
        for k in range(width):
            total += tile[t + k] * weights[k]
        out[i] = total


@cuda.jit
def prefix_sum(out, a, size):
    sums = cuda.shared.array(BLOCK, float32)
    i = cuda.grid(1)
    t = cuda.threadIdx.x
    sums[t] = a[i] if i < size else 0
    cuda.syncthreads()
    step = 1
    while step < BLOCK:
        value = float32(0)
        if t >= step:
            value = sums[t - step]
        cuda.syncthreads()
        sums[t] += value
        cuda.syncthreads()
        step *= 2
    if t == BLOCK - 1:
        out[cuda.blockIdx.x] = sums[t]


@cuda.jit
def axis_sum(out, a, size):
    sums = cuda.shared.array(BLOCK, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.y
    sums[t] = a[row, t] if t < size else 0
    cuda.syncthreads()
    step = BLOCK // 2
    while step:
        if t < step:
            sums[t] += sums[t + step]
        cuda.syncthreads()
        step //= 2
    if t == 0:
        out[row, 0] = sums[0]


@cuda.jit
def matmul(out, a, b, size):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for start in range(0, size, TILE):
        left[ty, tx] = a[y, start + tx] if y < size and start + tx < size else 0
        right[ty, tx] = b[start + ty, x] if start + ty < size and x < size else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[ty, k] * right[k, tx]
        cuda.syncthreads()
    if x < size and y < size:
        out[y, x] = total


def filled(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel()), device="cuda").reshape(shape)


def summed(values: torch.Tensor) -> torch.Tensor:
    return torch.stack([values[max(0, i - 2) : i + 1].sum() for i in range(len(values))])


def convolved(values: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    return torch.stack([(values[i : i + len(kernel)] * kernel[: len(values) - i]).sum() for i in range(len(values))])


def check(
    kernel: Any, config: tuple[Any, ...], out: torch.Tensor, args: tuple[Any, ...], expected: torch.Tensor
) -> None:
    with lab.record() as trace:
        kernel[config](out, *args)
    assert torch.allclose(out.cpu(), expected.cpu())
    assert not trace.races


def test_map():
    a = filled(4)
    check(map_, (1, 4), torch.zeros(4, device="cuda"), (a,), a + 10)


def test_zip():
    a, b = filled(4), filled(4) * 3
    check(zip_, (1, 4), torch.zeros(4, device="cuda"), (a, b), a + b)


def test_guard():
    a = filled(4)
    check(guard, (1, 8), torch.zeros(4, device="cuda"), (a, 4), a + 10)


def test_map_2d():
    a = filled(2, 2)
    check(map_2d, (1, (3, 3)), torch.zeros(2, 2, device="cuda"), (a, 2), a + 10)


def test_broadcast():
    column, row = filled(2, 1), filled(1, 2) * 5
    check(broadcast, (1, (3, 3)), torch.zeros(2, 2, device="cuda"), (column, row, 2), column + row)


def test_blocks():
    a = filled(9)
    check(blocks, (3, 4), torch.zeros(9, device="cuda"), (a, 9), a + 10)


def test_blocks_2d():
    a = filled(5, 5)
    check(blocks_2d, ((2, 2), (3, 3)), torch.zeros(5, 5, device="cuda"), (a, 5), a + 10)


def test_shared():
    a = filled(13)
    check(shared, (2, 8), torch.zeros(13, device="cuda"), (a, 13), a + 10)


def test_pooling():
    a = filled(8)
    check(pooling, (1, 8), torch.zeros(8, device="cuda"), (a, 8), summed(a))


def test_dot():
    a, b = filled(8), filled(8) + 1
    check(dot, (1, 8), torch.zeros(1, device="cuda"), (a, b, 8), (a * b).sum(0, keepdim=True))


def test_convolution():
    a, kernel = filled(15), filled(4)
    check(convolution, (2, 8), torch.zeros(15, device="cuda"), (a, kernel, 15, 4), convolved(a, kernel))


def test_prefix_sum():
    a = filled(15)
    expected = torch.stack([a[:8].sum(), a[8:].sum()])
    check(prefix_sum, (2, 8), torch.zeros(2, device="cuda"), (a, 15), expected)


def test_axis_sum():
    a = filled(4, 6)
    check(axis_sum, ((1, 4), 8), torch.zeros(4, 1, device="cuda"), (a, 6), a.sum(1, keepdim=True))


def test_matmul():
    a, b = filled(20, 20) / 100, filled(20, 20) / 50
    check(matmul, ((3, 3), (8, 8)), torch.zeros(20, 20, device="cuda"), (a, b, 20), a @ b)
