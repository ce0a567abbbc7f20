"""Random numbers of Triton's generator, ``tl.rand`` and its relatives: Philox, one counter for each offset.

Formulas: triton/language/random.py and torch/_inductor/runtime/triton_helpers.py (``rand4x``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from fakegpu_lab.hardware.philox import words

if TYPE_CHECKING:
    from torch import Tensor

_SCALE = np.float32(4.6566127342e-10)
_TURN = np.float32(6.283185307179586)
_LEAST = np.float32(1e-7)

Array = words.Array


def _words(seed: int, counters: Array) -> Array:
    """uint32 of shape (4, n): the words of each counter."""
    result = np.empty((4, counters.size), dtype=np.uint32)
    for begin in range(0, counters.size, words.CHUNK):
        part = counters[begin : begin + words.CHUNK]
        even, odd = np.zeros((2, part.size), dtype=np.uint32), np.zeros((2, part.size), dtype=np.uint32)
        even[0] = part
        for row, drawn in zip(result, words.rounds(even, odd, seed), strict=True):
            row[begin : begin + words.CHUNK] = drawn
    return result


def _uniform(drawn: Array) -> Array:
    whole = drawn.view(np.int32)
    numbers: Array = np.where(whole < 0, ~whole, whole).astype(np.float32) * _SCALE
    return numbers


def _normal(drawn: Array) -> Array:
    """Box and Muller's transform of each two rows."""
    u = _uniform(drawn)
    radius = np.sqrt(np.float32(-2) * np.log(np.maximum(_LEAST, u[0::2])))
    result = np.empty_like(u)
    result[0::2] = radius * np.cos(_TURN * u[1::2])
    result[1::2] = radius * np.sin(_TURN * u[1::2])
    return result


def _offsets(offset: Tensor) -> Array:
    numbers: Array = offset.contiguous().numpy().ravel().astype(np.uint32)
    return numbers


def floats(seed: int, offset: Tensor, *, normal: bool, four: bool) -> Tensor:
    """float32 in the shape of `offset`, in [0, 1) or of the standard normal distribution.

    Parameters
    ----------
    four
        Whether four neighboring offsets share a counter (``rand4x``).
    """
    make = _normal if normal else _uniform
    offsets = _offsets(offset)
    if four:
        counters, inverse = np.unique(offsets // 4, return_inverse=True)
        numbers = make(_words(seed, counters))[offsets % 4, inverse]
    else:
        numbers = make(_words(seed, offsets))[0]
    return torch.from_numpy(np.ascontiguousarray(numbers)).reshape(offset.shape)


def integers(seed: int, offset: Tensor, low: int, high: int) -> Tensor:
    """int64 in the shape of `offset`, from `low` to below `high`."""
    drawn = _words(seed, _offsets(offset)).astype(np.uint64)
    numbers = (drawn[0] | drawn[1] << np.uint64(32)) % np.uint64(high - low)
    return torch.from_numpy(numbers.astype(np.int64) + low).reshape(offset.shape)
