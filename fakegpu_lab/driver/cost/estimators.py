"""What the ops cost that neither stream nor multiply matrices: indexing, sorting, normalization, solvers.

The op sheet says which op has which (`Row.cost`); an op that has none streams.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.cost.work import Work, nbytes_of, numel_of, scalar_format, streaming
from fakegpu_lab.hardware.time.roofline import SOLVER_EFFICIENCY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.cost.work import Estimator
    from fakegpu_lab.hardware.device import Device


def passes(operands: float, results: float = 1.0) -> Estimator:
    """Several passes over operands and results."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        moved = round(nbytes * operands + nbytes_of(result) * results)
        roofline = device.roofline
        elements = max(numel_of(result), numel_of(args[0]) if args else 0)
        return Work(roofline.streaming(moved), elements, moved, roofline.share(elements))

    return estimate


def picking(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """One element of each row of the first operand is read: the loss of a class."""
    moved = nbytes_of(result) + sum(nbytes_of(a) for a in args[1:]) + 32 * numel_of(args[1])  # one sector each
    return Work(device.roofline.streaming(moved), numel_of(args[1]), moved, device.roofline.share(numel_of(args[1])))


def updating(*written: int) -> Estimator:
    """A fused optimizer: one kernel that reads all lists and writes those at the positions `written`."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        moved = nbytes + sum(nbytes_of(args[position]) for position in written if position < len(args))
        elements = numel_of(args[0])
        return Work(device.roofline.streaming(moved), 10 * elements, moved, device.roofline.share(elements))

    return estimate


def bag(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Sums of a table's rows, one for each bag: only the rows that the indices name are read."""
    row = nbytes_of(args[0]) // max(args[0].shape[0], 1)
    moved = numel_of(args[1]) * row + nbytes_of(args[1]) + nbytes_of(result)
    return Work(device.roofline.gather(moved), 0, moved, device.roofline.share(numel_of(result)))


def selecting(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """A radix selection: the keys are read once for each of their bytes (TensorTopK.cu), the selected ones written."""
    moved = args[0].element_size() * nbytes_of(args[0]) + nbytes_of(result)
    return Work(device.roofline.streaming(moved), 0, moved, device.roofline.share(numel_of(args[0])))


def writing(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Only the result is written."""
    moved = nbytes_of(result)
    return Work(device.roofline.streaming(moved), 0, moved, device.roofline.share(numel_of(result)))


def copying(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Operands are read and the result is written, and nothing is computed."""
    return streaming(device, args, result, nbytes)._replace(flops=0)


def gathering(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Rows or elements picked by an index: they are read and written, and the indices are read."""
    picked = nbytes_of(result)
    indices = sum(nbytes_of(a) for a in args[1:])
    moved = 2 * picked + min(indices, picked + 8 * numel_of(result))
    return Work(device.roofline.gather(moved), 0, moved, device.roofline.share(numel_of(result)))


def scattering(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """Elements written or added where an index says; a new result starts as a copy of the target."""
    target, rest = nbytes_of(args[0]), sum(nbytes_of(a) for a in args[1:])
    new = 2 * nbytes_of(result) if result is not None and result is not args[0] else 0
    moved = 2 * rest + new
    roofline = device.roofline
    elements = sum(numel_of(a) for a in args[1:])
    return Work(roofline.gather(2 * rest) + round(new * roofline.ns_per_byte), elements, min(moved, moved + target))


def embedding_backward(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """The gradient of the table: zeros, and the rows of the gradient added to it in the order of the sorted indices."""
    rows = nbytes_of(args[0])
    moved = nbytes_of(result) + 2 * rows + 8 * nbytes_of(args[1])
    roofline = device.roofline
    return Work(roofline.gather(2 * rows) + round(nbytes_of(result) * roofline.ns_per_byte), numel_of(args[0]), moved)


def sorting(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """A radix sort: one pass for each byte of the keys; an index moves with each key."""
    passes = args[0].element_size() if args else 4
    moved = 2 * passes * (nbytes_of(args[0]) + 8 * numel_of(args[0]))
    return Work(device.roofline.streaming(moved), 0, moved, device.roofline.share(numel_of(args[0])))


def transforming(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """A fast Fourier transform: 5 n log2 n FLOPs, in passes of up to 4096 points."""
    source = args[0]
    dims = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else [-1]
    points = max(prod(source.shape[d] for d in dims), 2)
    passes = -(-(points - 1).bit_length() // 12)
    moved = (nbytes + nbytes_of(result)) * passes
    flops = 5 * max(source.numel(), numel_of(result)) * (points - 1).bit_length()
    fmt = scalar_format(source.dtype)
    return Work(device.roofline.arithmetic(fmt, flops, moved), flops, moved)


def solving(factor: float) -> Estimator:
    """A factorisation of n×n matrices: ``factor`` n³ FLOPs."""

    def estimate(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
        matrix = max((a for a in args if isinstance(a, torch.Tensor) and a.dim() > 1), key=numel_of, default=None)
        if matrix is None:
            return streaming(device, args, result, nbytes)
        m, n = matrix.shape[-2:]
        flops = round(factor * matrix.numel() * min(m, n))
        fmt = scalar_format(matrix.dtype)
        moved = nbytes + nbytes_of(result)
        return Work(device.roofline.arithmetic(fmt, flops, moved, SOLVER_EFFICIENCY), flops, moved)

    return estimate


TWICE = passes(2.0)


def batch_norm(device: Device, args: Sequence[Any], result: Any, nbytes: int) -> Work:
    """In training the statistics are computed first, in evaluation they are known."""
    return (TWICE if args[5] else streaming)(device, args, result, nbytes)
