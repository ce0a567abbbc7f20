"""`tl.reduce`, `tl.associative_scan` and what is built of them, along an axis of the blocks of many programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

from fakegpu_lab.kernels.triton_programs.builder import FORMATS, narrowed, widened
from fakegpu_lab.kernels.triton_programs.running import now

if TYPE_CHECKING:
    from collections.abc import Callable

Array = Any

_SIMPLE: dict[str, Callable[..., Array]] = {
    "_sum_combine": np.sum,
    "_elementwise_max": np.fmax.reduce,
    "_elementwise_min": np.fmin.reduce,
    "_xor_combine": np.bitwise_xor.reduce,
    "_or_combine": np.bitwise_or.reduce,
}
_ARGS = {"_argmax_combine": (np.max, np.argmax), "_argmin_combine": (np.min, np.argmin)}
_SCANS: dict[str, Callable[..., Array]] = {"_sum_combine": np.cumsum, "_prod_combine": np.cumprod}


def _tensor(data: Array, dtype: Any, *, narrow: bool = False) -> Any:
    kind = dtype.scalar
    data = narrowed(data) if narrow else data.astype(_get_np_dtype(kind), copy=False)
    shape = list(data.shape[1:])
    return tl.tensor(TensorHandle(data, kind), tl.block_type(kind, shape) if shape else kind)


def _values(tensor: Any) -> Array:
    return widened(tensor.handle.data) if tensor.dtype.is_bf16() else tensor.handle.data


def _name(function: Any) -> str:
    """The name of one of Triton's own combining functions; empty for another."""
    inner = getattr(function, "fn", function)
    return inner.__name__ if getattr(inner, "__module__", "") == "triton.language.standard" else ""


def _count(tensor: Any) -> None:
    if tensor.dtype.name in FORMATS:
        now[-1].computed(math.prod(tensor.handle.data.shape[1:]), tensor.dtype.name)


def reduce(call: Callable[..., Any], operand: Any, axis: Any, combine: Any, keep_dims: bool = False) -> Any:
    """`tl.reduce`; `call` runs the combining function."""
    single = not isinstance(operand, (tuple, tl.tuple))
    inputs = [operand] if single else list(operand)
    if axis is None:
        inputs = [_tensor(one.handle.data.reshape(len(one.handle.data), -1), one.dtype) for one in inputs]
    dims = len(operand.shape if single else operand[0].shape)
    where = 1 if axis is None else (axis % dims) + 1
    _count(inputs[0])
    name = _name(combine)
    arg = next((functions for start, functions in _ARGS.items() if name.startswith(start)), None)
    if name in _SIMPLE and single:
        found = [_SIMPLE[name](_values(inputs[0]), axis=where)]
    elif arg is not None:
        best, place = arg
        found = [best(_values(inputs[0]), axis=where), place(_values(inputs[0]), axis=where)]
    else:
        found = _folded(call, inputs, where, combine)
    results = []
    for one, data in zip(inputs, found, strict=True):
        if keep_dims:
            data = data.reshape(len(data), *[1] * dims) if axis is None else np.expand_dims(data, where)  # noqa: PLW2901
        results.append(_tensor(data, one.dtype, narrow=one.dtype.is_bf16() and data.dtype != np.uint16))
    return results[0] if single else tuple(results)


def _folded(call: Callable[..., Any], inputs: list[Any], where: int, combine: Any) -> list[Array]:
    """Combine halves with halves, as the threads of a warp do; a block's extents are powers of two."""
    blocks = [np.moveaxis(one.handle.data, where, -1) for one in inputs]
    while blocks[0].shape[-1] > 1:
        half = blocks[0].shape[-1] // 2
        left = [_tensor(data[..., :half], one.dtype) for data, one in zip(blocks, inputs, strict=True)]
        right = [_tensor(data[..., half:], one.dtype) for data, one in zip(blocks, inputs, strict=True)]
        outcome = call(combine, *left, *right)
        outcome = outcome if isinstance(outcome, (tuple, tl.tuple)) else (outcome,)
        blocks = [one.handle.data for one in outcome]
    return [data[..., 0] for data in blocks]


def scan(call: Callable[..., Any], operand: Any, axis: int, combine: Any, reverse: bool = False) -> Any:
    """`tl.associative_scan`."""
    single = not isinstance(operand, (tuple, tl.tuple))
    inputs = [operand] if single else list(operand)
    where = axis % len(inputs[0].shape) + 1
    _count(inputs[0])
    name = _name(combine)
    turned = [np.flip(_values(one) if name in _SCANS else one.handle.data, where) if reverse else
              (_values(one) if name in _SCANS else one.handle.data) for one in inputs]  # fmt: skip
    if name in _SCANS and single:
        found = [_SCANS[name](turned[0], axis=where)]
    else:
        found = _scanned(call, inputs, turned, where, combine)
    results = [
        _tensor(np.flip(data, where) if reverse else data, one.dtype, narrow=one.dtype.is_bf16() and name in _SCANS)
        for one, data in zip(inputs, found, strict=True)
    ]
    return results[0] if single else tuple(results)


def _scanned(call: Callable[..., Any], inputs: list[Any], data: list[Array], where: int, combine: Any) -> list[Array]:
    """Combine each element with the one 1, 2, 4, … places before it (Hillis and Steele)."""
    blocks = [np.moveaxis(one, where, -1).copy() for one in data]
    distance = 1
    while distance < blocks[0].shape[-1]:
        left = [_tensor(np.roll(one, distance, -1), like.dtype) for one, like in zip(blocks, inputs, strict=True)]
        right = [_tensor(one, like.dtype) for one, like in zip(blocks, inputs, strict=True)]
        outcome = call(combine, *left, *right)
        outcome = outcome if isinstance(outcome, (tuple, tl.tuple)) else (outcome,)
        for block, new in zip(blocks, outcome, strict=True):
            block[..., distance:] = new.handle.data[..., distance:]
        distance *= 2
    return [np.moveaxis(one, -1, where) for one in blocks]
