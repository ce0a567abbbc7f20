"""Takes device memory before the host computes a large result.

A result of 100 GiB on a 4 GiB GPU must fail in milliseconds and use no RAM. For most calls a cheap upper bound on the
result's size shows that it is harmless to compute first. Else the op runs once on meta tensors, which gives the exact
sizes, and the device is asked whether they fit. The effect on the device is the same either way.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.device_memory import resize_bytes, take_bytes

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.tensor import FakeCudaTensor
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device

SMALL = 8 * 1024
"""Operands with at most this many bytes together cannot make a large result, unless the op takes sizes."""

HARMLESS = 64 * 1024 * 1024
"""A result of at most this many bytes may be computed before its device memory is taken."""


def reserve(op: Op, device: Device, inner: list[Any], kwargs: dict[str, Any], nbytes: int) -> list[Buffer] | None:
    """Take the storages of the op's results before they are computed; None if that can wait.

    Parameters
    ----------
    inner
        The positional arguments, inner tensors in place of device tensors.
    nbytes
        An upper bound on the bytes of the tensors among them.
    """
    if _upper_bound(op, inner, nbytes) <= HARMLESS or current.meta():  # meta tensors take no RAM
        return None
    results = on_meta(op, inner, kwargs)
    if results is None:
        return None
    return [take_bytes(device, result.nbytes) for result in results]


def reserve_outs(op: Op, outs: list[FakeCudaTensor], inner: list[Any], kwargs: dict[str, Any], nbytes: int) -> None:
    """`reserve` for ``out=``: tensors that the op will enlarge get their new storage now."""
    if _upper_bound(op, inner, nbytes) <= HARMLESS:
        return
    results = on_meta(op, inner, kwargs)
    if results is not None and len(results) == len(outs):
        for tensor, result in zip(outs, results, strict=True):
            if result.nbytes > tensor._buffer.nbytes:
                resize_bytes(tensor._buffer, result.nbytes)


def reserve_resized(tensor: FakeCudaTensor, like: Any) -> None:
    """Take the device memory of a tensor that is about to be resized to a shape, or to the shape of a tensor."""
    shape = like.shape if isinstance(like, torch.Tensor) else like
    needed = (int(tensor.storage_offset()) + prod(shape)) * tensor.element_size()
    if needed > tensor._buffer.nbytes:
        resize_bytes(tensor._buffer, needed)


def _upper_bound(op: Op, inner: list[Any], nbytes: int) -> int:
    """A bound on the bytes of the op's results: quick to compute and rarely far too high."""
    if not op.row.grows:
        return 2 * nbytes
    special = op.row.bound
    if special is not None and (known := special(inner)) is not None:
        return known
    bound = max(nbytes, 16)
    numels = []
    first = None
    same = True
    for argument in inner:
        if isinstance(argument, torch.Tensor):
            numel = argument.numel()
            if first is None:
                first = argument
            elif numel > 1 and argument.shape != first.shape:
                same = False
            numels.append(numel)
        elif argument.__class__ is int:
            if argument > 1:
                bound *= argument
        elif argument.__class__ in (list, tuple):
            for item in argument:
                if item.__class__ is int and item > 1:
                    bound *= item
    if len(numels) < 2 or (op.pointwise and same):
        return 8 * bound if op.pointwise else bound  # a pointwise op may widen uint8 to int64
    return bound * prod(numels) // max(1, *numels)


def embedding_bound(inner: list[Any]) -> int | None:
    """One row of the table for each index; None if they are not positional arguments, or no table."""
    if len(inner) < 2 or inner[0].dim() != 2:
        return None
    table, indices = inner[:2]
    return int(table.shape[-1] * table.element_size() * indices.numel())


def product_bound(inner: list[Any]) -> int | None:
    """Rows of the first factor × columns of the second, at most 8 bytes each; None if they are not matrices."""
    matrices = [argument for argument in inner if isinstance(argument, torch.Tensor)][-2:]
    if len(matrices) < 2 or matrices[0].dim() < 2 or matrices[1].dim() < 2:
        return None
    a, b = matrices
    return int(a.numel() // max(a.shape[-1], 1) * b.shape[-1] * 8)


def convolution_bound(inner: list[Any]) -> int:
    """Channels × extents of the result; as if the stride were 1, unless the convolution is transposed."""
    source, weight, _, stride, padding, dilation, transposed, output_padding = inner[:8]
    extents = source.shape[2:]
    if not transposed and len(padding) == len(extents) == 2:  # the common case, written out
        height, width = extents
        area = (height + 2 * padding[0]) * (width + 2 * padding[1])
        return int(source.shape[0] * weight.shape[0] * max(area, 1) * 8)
    if transposed:
        ends = (
            (n - 1) * s + d * (k - 1) + p + 1
            for n, s, d, k, p in zip(
                extents, stride, dilation, weight.shape[2:], output_padding or [0] * len(extents), strict=False
            )
        )
    else:
        ends = (n + 2 * p for n, p in zip(extents, padding, strict=False))
    channels = weight.shape[1] * inner[8] if transposed else weight.shape[0]
    return int(source.shape[0] * channels * max(prod(ends), 1) * 8)


def on_meta(op: Op, inner: list[Any], kwargs: dict[str, Any]) -> list[torch.Tensor] | None:
    """The op's results as meta tensors; None if it has no meta kernel, or their sizes depend on values."""
    with_dtype = op.row.cublas and op.schema.overload_name.startswith("dtype")  # torch has no shape function of these
    function = op.call if with_dtype else op.func
    try:
        results = function(
            *torch.utils._pytree.tree_map(_to_meta, inner), **torch.utils._pytree.tree_map(_to_meta, kwargs)
        )
    except (AttributeError, RuntimeError, TypeError):
        return None  # no meta kernel; or an error that the real call raises again, with the right message
    tensors = [r for r in torch.utils._pytree.tree_leaves(results) if isinstance(r, torch.Tensor)]
    sparse = any(t.layout is not torch.strided for t in tensors)  # then the size depends on values
    return None if sparse else tensors


def _to_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout is not torch.strided:
        raise NotImplementedError
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
