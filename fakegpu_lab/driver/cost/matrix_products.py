"""What products of matrices cost: matmul and related ops, fused attention; `convolutions` has the convolutions.

The FLOPs agree with torch's own counter (torch/utils/flop_counter.py; a test compares them), except for the backward
of grouped convolutions, where torch counts the weights' gradient as if there were no groups. Tensor cores are used
where cuBLAS and cuDNN use them: for half, bfloat16 and 8-bit operands, and for float32 if TF32 is allowed and the GPU
has it.
"""

from __future__ import annotations

from math import gcd, prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.work import Work, format_of, fp32_precision, nbytes_of, numel_of, scalar_format, streaming
from fakegpu_lab.hardware.time.roofline import ATTENTION_EFFICIENCY, ATTENTION_TILE, attention_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.cost.work import Estimator
    from fakegpu_lab.hardware.device import Device


def product(
    device: Device, dtype: torch.dtype, m: int, n: int, k: int, batch: int = 1, nbytes: int = 0, row: int = 0
) -> Work:
    """`batch` products of m×k by k×n matrices; `nbytes` if they move more or less than operands and results.

    The first one's rows are `row` elements apart: k, or m if it lies transposed.
    """
    known = device.roofline.known
    precision = fp32_precision("cuda", "matmul") if dtype is torch.float32 else ""
    key = (dtype, precision, m, n, k, batch, nbytes, row)
    work: Work | None = known.get(key)
    if work is None:
        work = device.roofline.remember(key, _product(device, dtype, m, n, k, batch, nbytes, row or k))
    return work


def _product(device: Device, dtype: torch.dtype, m: int, n: int, k: int, batch: int, nbytes: int, row: int) -> Work:
    size = dtype.itemsize
    if not nbytes:
        nbytes = (m * k + k * n + m * n) * batch * size
    roofline = device.roofline
    real = 4 if dtype.is_complex else 1  # real multiplications in a complex one
    flops = 2 * m * n * k * batch
    if m == 1 or n == 1:  # a matrix and a vector: memory alone decides
        return Work(roofline.streaming(nbytes), flops, nbytes, roofline.share(m * n * k))
    fmt = format_of(dtype, device)
    alignment = 16 if fmt in ("fp32", "fp64") or size > 4 else gcd(16, n * size, row * size)
    ns = roofline.gemm(fmt, m, n, k, batch * real, nbytes=nbytes, alignment=alignment)
    return Work(ns, flops, nbytes, roofline.gemm_share(m, n, batch))


def mm(a: int) -> Estimator:
    """A product of the matrices at positions `a` and `a` + 1."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        left, right = args[a], args[a + 1]
        if left.layout is not torch.strided or right.layout is not torch.strided:
            return _sparse(device, left, right, result, nbytes)
        m, k = left.shape if left.dim() == 2 else (1, left.shape[0])
        n = right.shape[1] if right.dim() == 2 else 1
        row = m if left.stride(-1) != 1 else 0
        return product(device, left.dtype, m, n, k, nbytes=nbytes + nbytes_of(result), row=row)

    return estimate


def _sparse(device: Device, left: Any, right: Any, result: Any, nbytes: int) -> Work:
    """A sparse by a dense matrix (cuSPARSE): for each value, a row of the dense matrix is read and added."""
    sparse, dense = (left, right) if left.layout is not torch.strided else (right, left)
    values = sparse._nnz() if not sparse.is_meta else 0
    columns = numel_of(dense) // max(dense.shape[0 if dense is right else -1], 1)
    moved = values * columns * dense.element_size() + nbytes_of(sparse) + nbytes_of(result)
    return Work(device.roofline.gather(moved), 2 * values * columns, moved)


def bmm(a: int) -> Estimator:
    """Products of the batches of matrices at positions `a` and `a` + 1."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        batch, m, k = args[a].shape
        return product(device, args[a].dtype, m, args[a + 1].shape[2], k, batch, nbytes + nbytes_of(result))

    return estimate


def linear(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """``input @ weight.T``, the bias in the epilogue."""
    source, weight = args[0], args[1]
    k = source.shape[-1]
    return product(device, source.dtype, source.numel() // (k or 1), weight.numel() // (k or 1), k)


def euclidean_distances(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """One product of the rows and their squares, then the sum and the root in place (Distance.cpp, _euclidean_dist)."""
    first, second = args[0], args[1]
    m, n, k = first.shape[-2], second.shape[-2], first.shape[-1] + 2
    matrices = product(device, first.dtype, m, n, k, numel_of(result) // max(m * n, 1))
    passes = device.roofline.streaming(4 * nbytes_of(result) + 2 * nbytes)
    moved = matrices.nbytes + 4 * nbytes_of(result) + 2 * nbytes
    return Work(matrices.ns + passes, matrices.flops + 2 * numel_of(result), moved, matrices.share)


def pairwise_distances(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """For each pair of rows, a subtraction, a power and a sum for each number (DistanceKernel.cu).

    A block of threads adds up each pair: a quarter of the peak is an estimate.
    """
    source = args[0]
    flops, moved = 3 * numel_of(result) * source.shape[-1], nbytes + nbytes_of(result)
    return Work(device.roofline.arithmetic(scalar_format(source.dtype), flops, moved, 0.25), flops, moved)


def trilinear(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Elementwise products of the three broadcast tensors, and their sum, piece by piece (Linear.cpp, _trilinear).

    Each piece is written and read twice: 20 bytes for each float32 of the broadcast shape, and no tensor cores.
    """
    expanded = []
    for tensor, dims in zip(args[:3], args[3:6], strict=True):
        shape = list(tensor.shape)
        for dim in dims:
            shape.insert(dim, 1)
        expanded.append(shape)
    count = prod(map(max, zip(*expanded, strict=True)))
    moved = 5 * count * args[0].element_size() + nbytes_of(result)
    return Work(device.roofline.streaming(moved), 3 * count, moved)


def conv_tbc(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """A product for each tap (ConvolutionTBC.cpp)."""
    source, weight = args[0], args[1]
    taps, channels, filters = weight.shape
    return product(device, source.dtype, numel_of(result) // max(filters, 1), filters, channels * taps)


def attention(
    device: Device,
    query: Any,
    key: Any,
    value: Any,
    *,
    causal: bool,
    backward: bool,
    nbytes: int,
    which: str = "flash",
) -> Work:
    """Fused attention, which writes no N×N matrix to memory; a causal mask skips half of the work.

    Shapes are (batch, heads, length, width); `which` is the kernel: ``"flash"``, ``"efficient"`` or ``"cudnn"``.
    """
    precision = fp32_precision("cuda", "matmul")
    known = (query.shape, key.shape, value.shape[-1], query.dtype, precision, causal, backward, nbytes, which)
    work: Work | None = device.roofline.known.get(known)
    if work is None:
        work = device.roofline.remember(
            known, _attention_work(device, query, key, value, causal, backward, nbytes, which)
        )
    return work


def _attention_work(
    device: Device, query: Any, key: Any, value: Any, causal: bool, backward: bool, nbytes: int, which: str
) -> Work:
    batch, heads, length, width = query.shape
    if which == "flash" and length == 1 and heads > key.shape[1] and not backward:
        # the queries of a group become the rows of one tile: seqlenq_ngroups_swapped (flash_api.cpp)
        heads, length = key.shape[1], heads // key.shape[1]
    columns = key.shape[-2]
    products = 2 * batch * heads * length * columns
    flops = products * (width + value.shape[-1])
    if backward:  # the scores again and four products: torch counts five where the forward pass has two
        flops = products * (3 * width + 2 * value.shape[-1])
    efficiency = ATTENTION_EFFICIENCY[which][device.profile.compute_capability >= (9, 0)][backward]
    tiles = -(-length // ATTENTION_TILE[0]) * -(-columns // ATTENTION_TILE[1])
    computed = flops * (tiles * prod(ATTENTION_TILE) / (length * columns) if length * columns else 1)
    computed *= attention_width(width) / (width or 1)
    ns = device.roofline.arithmetic(
        format_of(query.dtype, device), computed / (2 if causal else 1), nbytes, efficiency
    )  # fmt: skip
    return Work(ns, flops, nbytes, device.roofline.gemm_share(length, 64, batch * heads))


def fused_attention(backward: bool, at: int, causal_at: int) -> Estimator:
    """The CPU's fused attention, with queries at the position `at`."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        if args[at].dim() != 4:
            return streaming(device, args, result, nbytes)
        causal = len(args) > causal_at and args[causal_at] is True
        moved = nbytes + nbytes_of(result)
        query, key, value = args[at : at + 3]
        return attention(device, query, key, value, causal=causal, backward=backward, nbytes=moved)

    return estimate
