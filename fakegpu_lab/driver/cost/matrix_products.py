"""What products of matrices cost: matmul and related ops, convolutions, fused attention.

The FLOPs agree with torch's own counter (torch/utils/flop_counter.py; a test compares them), except for the backward
of grouped convolutions, where torch counts the weights' gradient as if there were no groups. Tensor cores are used
where cuBLAS and cuDNN use them: for half, bfloat16 and 8-bit operands, and for float32 if TF32 is allowed and the GPU
has it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.work import Work, nbytes_of, numel_of, streaming
from fakegpu_lab.hardware.time.roofline import ATTENTION_EFFICIENCY, CONVOLUTION_EFFICIENCY, DIRECT_EFFICIENCY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.driver.cost.work import Estimator
    from fakegpu_lab.hardware.device import Device

_fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter

_FORMATS = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64", torch.complex128: "fp64",
    torch.complex64: "fp32", torch.int8: "int8", torch.uint8: "int8",
    torch.float8_e4m3fn: "fp8", torch.float8_e5m2: "fp8",
}  # fmt: skip


def format_of(dtype: torch.dtype, device: Device, what: str = "matmul") -> str:
    """The number format in which a product of dtype `dtype` is computed.

    Parameters
    ----------
    what
        ``"matmul"``, ``"conv"`` or ``"rnn"``: which TF32 switch counts for float32.
    """
    if dtype is torch.float32:
        if device.profile.peak_flops.tf32 is None:
            return "fp32"
        return "tf32" if _fp32_precision("cuda", what) in ("tf32", "bf16") else "fp32"
    fmt = _FORMATS.get(dtype, "fp32")
    if fmt == "fp64" and device.profile.peak_flops.fp64_tensor is not None:
        return "fp64_tensor"
    return fmt


def product(device: Device, dtype: torch.dtype, m: int, n: int, k: int, batch: int = 1, nbytes: int = 0) -> Work:
    """`batch` products of m×k by k×n matrices; `nbytes` if they move more or less than operands and results."""
    known = device.roofline.known
    precision = _fp32_precision("cuda", "matmul") if dtype is torch.float32 else ""
    key = (dtype, precision, m, n, k, batch, nbytes)
    work: Work | None = known.get(key)
    if work is None:
        work = device.roofline.remember(key, _product(device, dtype, m, n, k, batch, nbytes))
    return work


def _product(device: Device, dtype: torch.dtype, m: int, n: int, k: int, batch: int, nbytes: int) -> Work:
    size = dtype.itemsize
    if not nbytes:
        nbytes = (m * k + k * n + m * n) * batch * size
    roofline = device.roofline
    real = 4 if dtype.is_complex else 1  # real multiplications in a complex one
    flops = 2 * m * n * k * batch
    if m == 1 or n == 1:  # a matrix and a vector: memory alone decides
        return Work(roofline.streaming(nbytes), flops, nbytes, roofline.share(m * n * k))
    row = 16 // size
    ns = roofline.gemm(
        format_of(dtype, device), m, n, k, batch * real, nbytes=nbytes, aligned=not (n % row or k % row) or size > 4
    )
    return Work(ns, flops, nbytes, roofline.gemm_share(m, n, batch))


def _mm(a: int) -> Estimator:
    """A product of the matrices at positions `a` and `a` + 1."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        left, right = args[a], args[a + 1]
        if left.layout is not torch.strided or right.layout is not torch.strided:
            return _sparse(device, left, right, result, nbytes)
        m, k = left.shape if left.dim() == 2 else (1, left.shape[0])
        n = right.shape[1] if right.dim() == 2 else 1
        return product(device, left.dtype, m, n, k, nbytes=nbytes + nbytes_of(result))

    return estimate


def _sparse(device: Device, left: Any, right: Any, result: Any, nbytes: int) -> Work:
    """A sparse by a dense matrix (cuSPARSE): for each value, a row of the dense matrix is read and added."""
    sparse, dense = (left, right) if left.layout is not torch.strided else (right, left)
    values = sparse._nnz() if not sparse.is_meta else 0
    columns = numel_of(dense) // max(dense.shape[0 if dense is right else -1], 1)
    moved = values * columns * dense.element_size() + nbytes_of(sparse) + nbytes_of(result)
    return Work(device.roofline.gather(moved), 2 * values * columns, moved)


def _bmm(a: int) -> Estimator:
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


def _convolved(device: Device, source: Any, weight: Any, image: Any, groups: int, nbytes: int) -> Work:
    """An implicit matrix product, output positions by channels by window; `image` gives the output positions.

    A depthwise convolution (one filter for each channel) is not a product: PyTorch's own direct kernel computes it.
    Tensor cores need channels last; if the channels come first, cuDNN launches another kernel before its own
    (`_rearranged`).
    """
    positions = image.shape[0] * prod(image.shape[2:])
    window = prod(weight.shape[1:])
    channels = weight.shape[0] // groups
    dtype = source.dtype
    roofline = device.roofline
    fmt = format_of(dtype, device, "conv")
    flops = 2 * positions * window * weight.shape[0]
    if weight.shape[1] == 1 and groups > 1:
        direct = "fp64" if dtype.itemsize > 4 else "fp32"
        ns = roofline.arithmetic(direct, flops, nbytes, DIRECT_EFFICIENCY)
        return Work(ns, flops, nbytes, roofline.share(positions * weight.shape[0]))
    row = 16 // min(dtype.itemsize, 16)
    ns = roofline.gemm(
        fmt, positions, channels, window, groups, nbytes=nbytes, efficiency=CONVOLUTION_EFFICIENCY,
        aligned=fmt in ("fp32", "fp64") or not (channels % row or weight.shape[1] % row) or weight.shape[1] < row,
    )  # fmt: skip
    return Work(ns, flops, nbytes, roofline.gemm_share(positions, channels, groups))


def _rearranged(device: Device, operands: Sequence[Any]) -> tuple[int, int]:
    """Nanoseconds and bytes of cuDNN's ``nchwToNhwcKernel`` on operands whose channels come first.

    Tensor-core kernels read channels last (cuDNN's developer guide, "Tensor Core operations") and write either
    layout, so only operands are rearranged. Compared with channels last, this makes a step in mixed precision a
    quarter slower on a V100 (PaddlePaddle's pull request 20597 measured 0.195 s against 0.16 s for ResNet-50).
    """
    ns = moved = 0
    for operand in operands:
        tensor_cores = format_of(operand.dtype, device, "conv") not in ("fp32", "fp64", "fp64_tensor")
        if not tensor_cores or operand.dim() != 4 or operand.is_contiguous(memory_format=torch.channels_last):
            continue
        moved += 2 * operand.nbytes
        ns += device.roofline.streaming(2 * operand.nbytes)
    return ns, moved


def convolution(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """The forward pass of a convolution, also of a transposed one."""
    source, weight = args[0], args[1]
    transposed, groups = args[6], args[8]
    nbytes += result.nbytes
    key = (
        source.shape, weight.shape, result.shape, source.stride(), source.dtype, _fp32_precision("cuda", "conv"),
        transposed, groups, nbytes,
    )  # fmt: skip
    work: Work | None = device.roofline.known.get(key)
    if work is None:
        one = _convolved(device, source, weight, source if transposed else result, groups, nbytes)
        ns, moved = (0, 0) if weight.shape[1] == 1 < groups else _rearranged(device, (source,))
        work = device.roofline.remember(key, Work(one.ns + ns, one.flops, one.nbytes + moved, one.share))
    return work


def convolution_backward(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """The gradients that the mask requests; each is a convolution."""
    grad, source, weight = args[0], args[1], args[2]
    transposed, groups, mask = args[7], args[9], args[10]
    key = (
        grad.shape, source.shape, weight.shape, grad.stride(), source.stride(), source.dtype,
        _fp32_precision("cuda", "conv"), transposed, groups, *mask, nbytes,
    )  # fmt: skip
    work: Work | None = device.roofline.known.get(key)
    if work is None:
        work = device.roofline.remember(
            key, _convolved_backward(device, grad, source, weight, transposed, groups, mask, nbytes)
        )
    return work


def _convolved_backward(
    device: Device,
    grad: Any,
    source: Any,
    weight: Any,
    transposed: bool,
    groups: int,
    mask: Sequence[bool],
    nbytes: int,
) -> Work:
    one = _convolved(device, source, weight, source if transposed else grad, groups, nbytes)
    count = int(mask[0]) + int(mask[1])
    ns = device.roofline.streaming(grad.nbytes) if mask[2] else 0
    moved = 0
    if not weight.shape[1] == 1 < groups:
        for wanted, operands in zip(mask[:2], ((grad,), (source, grad)), strict=True):
            more = _rearranged(device, operands) if wanted else (0, 0)
            ns, moved = ns + more[0], moved + more[1]
    ns = max(one.ns * count + ns, device.roofline.floor)
    return Work(ns, one.flops * count, nbytes * count + moved, one.share)


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
    precision = _fp32_precision("cuda", "matmul")
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
    columns = key.shape[-2]
    products = 2 * batch * heads * length * columns
    flops = products * (width + value.shape[-1])
    if backward:  # the scores again and four products: torch counts five where the forward pass has two
        flops = products * (3 * width + 2 * value.shape[-1])
    efficiency = ATTENTION_EFFICIENCY[which][device.profile.compute_capability >= (9, 0)][backward]
    ns = device.roofline.arithmetic(format_of(query.dtype, device), flops / (2 if causal else 1), nbytes, efficiency)
    return Work(ns, flops, nbytes, device.roofline.gemm_share(length, 64, batch * heads))


def _attention(backward: bool, at: int, causal_at: int) -> Estimator:
    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        if args[at].dim() != 4:
            return streaming(device, args, result, nbytes)
        causal = len(args) > causal_at and args[causal_at] is True
        moved = nbytes + nbytes_of(result)
        query, key, value = args[at : at + 3]
        return attention(device, query, key, value, causal=causal, backward=backward, nbytes=moved)

    return estimate


PRODUCTS: dict[str, Estimator] = {
    **dict.fromkeys(("mm", "_int_mm", "_scaled_mm", "mv", "dot", "vdot"), _mm(0)),
    **dict.fromkeys(("addmm", "addmm_", "_addmm_activation", "addmv", "addmv_"), _mm(1)),
    "bmm": _bmm(0),
    **dict.fromkeys(("baddbmm", "baddbmm_", "addbmm", "addbmm_"), _bmm(1)),
    "linear": linear,
    **dict.fromkeys(("convolution", "_convolution", "cudnn_convolution"), convolution),
    "convolution_backward": convolution_backward,
    "_scaled_dot_product_flash_attention_for_cpu": _attention(False, 0, 4),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(True, 1, 7),
}
"""Estimators by the op's name."""
