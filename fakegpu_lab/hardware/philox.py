"""Philox 4×32-10 as cuRAND runs it, for all threads of a kernel at once.

A CUDA thread starts at ``curand_init(seed, thread, offset)``: key = seed, counter = (offset / 4, thread); each further
call of `curand4` adds one to the counter's first half and gives four 32-bit words (curand_philox4x32_x.h). PyTorch's
kernels stride over a tensor with a grid that the card's size caps (`Grid`), so a large tensor depends on the card.

Reproduced digit for digit: the words, and what follows from them by exact or correctly rounded arithmetic (uniform
numbers, integers). Normal numbers go through a logarithm, a sine and a cosine: a card takes the last two for float32
from its approximate units (`__sincosf`, absolute error about 2^-21), so the last digits may differ from a real card's.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Array = np.ndarray[Any, Any]
    Words = tuple[Array, Array, Array, Array]
    Lanes = Callable[[Words, int], Sequence[Array]]

BLOCK = 256
"""Threads in a block of PyTorch's random kernels (DistributionTemplates.h: block_size_bound)."""

_CHUNK = 8192  # threads at a time: the arrays of one round stay in the processor's cache
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


class Grid(NamedTuple):
    """The launch of a random kernel (DistributionTemplates.h: calc_execution_policy).

    Attributes
    ----------
    threads
        Of the whole grid.
    lanes
        Numbers that a thread makes from one `curand4`: 4, or 2 where each takes 64 bits.
    increment
        By how much the generator's offset advances.
    """

    threads: int
    lanes: int
    increment: int


def grid(numel: int, lanes: int, sm_count: int, max_threads_per_sm: int) -> Grid:
    """The launch for `numel` > 0 elements on a card of that size."""
    blocks = min(sm_count * (max_threads_per_sm // BLOCK), -(-numel // BLOCK))
    threads = blocks * BLOCK
    return Grid(threads, lanes, ((numel - 1) // (threads * lanes) + 1) * 4)


class _Workspace(threading.local):
    """Arrays that every call reuses."""

    def __init__(self) -> None:
        self.even = np.empty((2, _CHUNK), dtype=np.uint32)
        self.products = np.empty((2, _CHUNK), dtype=np.uint64), np.empty((2, _CHUNK), dtype=np.uint64)
        self.counting = np.arange(_CHUNK, dtype=np.uint64)


_workspace = _Workspace()


@lru_cache(maxsize=64)
def _keys(seed: int) -> tuple[Array, ...]:
    """The key of each round, as a column."""
    low, high = seed & _MASK, seed >> 32 & _MASK
    return tuple(
        np.array([[(low + i * _WEYL[0]) & _MASK], [(high + i * _WEYL[1]) & _MASK]], dtype=np.uint32) for i in range(10)
    )


def rounds(even: Array, odd: Array, seed: int) -> Words:
    """Ten rounds over at most 8192 counters at once.

    Parameters
    ----------
    even, odd
        uint32 of shape (2, n): words 0 and 2, and 1 and 3, of each counter. `even` is overwritten.
    seed
        The 64-bit key.

    Returns
    -------
    The four words, uint32 of shape (n,): views of room that the next call overwrites.
    """
    multiply, xor = np.multiply, np.bitwise_xor
    count = even.shape[1]
    # The halves of a product are views of it; the two that a thread multiplies change places.
    one, other = (
        (product, halves[::-1, 0::2], halves[::-1, 1::2])
        for product in (product[:, :count] for product in _workspace.products)
        for halves in (product.view("<u4"),)
    )
    for key in _keys(seed):
        product, low, high = one
        multiply(even, _MULTIPLIERS, product)
        xor(high, odd, even)
        xor(even, key, even)
        odd = low
        one, other = other, one
    return even[0], odd[0], even[1], odd[1]


def words(seed: int, counter: int, first: int, count: int) -> Words:
    """The four words of threads `first` … `first + count - 1` (at most 8192) at that counter (offset / 4 + calls).

    They live in room that the next call overwrites.
    """
    even = _workspace.even[:, :count]
    odd = np.zeros((2, count), dtype=np.uint32)
    even[0] = counter & _MASK
    odd[0] = counter >> 32 & _MASK
    threads = _workspace.counting[:count] + np.uint64(first)
    even[1] = threads  # its lower half
    if first + count > _MASK:
        odd[1] = threads >> np.uint64(32)
    return rounds(even, odd, seed)


def fill(out: Array, seed: int, offset: int, launch: Grid, lanes: Lanes) -> None:
    """Fill `out` (one dimension) as PyTorch's grid-stride kernel does.

    Thread t puts lane l of its call c into element ``(c · lanes + l) · threads + t``.

    Parameters
    ----------
    lanes
        Turns the words of many threads into their numbers: called with the words and how many lanes are wanted, it
        returns those arrays.
    """
    numel = len(out)
    threads = launch.threads
    start = 0
    counter = offset // 4
    while start < numel:
        wanted = min(launch.lanes, -(-(numel - start) // threads))
        for first in range(0, min(threads, numel - start), _CHUNK):
            count = min(_CHUNK, threads - first, numel - start - first)
            drawn = lanes(words(seed, counter, first, count), wanted)
            for lane in range(wanted):
                position = start + lane * threads + first
                part = out[position : position + count]
                part[:] = drawn[lane][: len(part)]
        start += threads * launch.lanes
        counter += 1


def interleaved(out: Array, seed: int, offset: int, lanes: Lanes, per_thread: int = 4) -> None:
    """Fill `out` (one dimension) as a kernel does whose thread t makes elements ``4 t … 4 t + 3`` from one `curand4`.

    With `per_thread` below 4 a thread leaves the rest of its words unused.
    """
    numel = len(out)
    for start in range(0, numel, _CHUNK * per_thread):
        count = min(_CHUNK, -(-(numel - start) // per_thread))
        drawn = lanes(words(seed, offset // 4, start // per_thread, count), per_thread)
        for lane in range(per_thread):
            part = out[start + lane : start + per_thread * count : per_thread]
            part[:] = drawn[lane][: len(part)]


def _single(word: Array) -> Array:
    single: Array = word.astype(np.float32)
    return single


_INV32 = np.float32(2.0**-32)
_INV33 = np.float32(2.0**-33)
_INV32_2PI = np.float32(2.0**-32) * np.float32(6.2831855)


def uniform(drawn: Words, wanted: int) -> list[Array]:
    """`curand_uniform4`: float32 in (0, 1]."""
    results = []
    for word in drawn[:wanted]:
        value = _single(word)
        value *= _INV32
        value += _INV33
        results.append(value)
    return results


def normal(drawn: Words, wanted: int) -> list[Array]:
    """`curand_normal4`: float32, Box–Muller on the words in pairs, sine first (curand_normal.h)."""
    results: list[Array] = []
    for x, y in ((drawn[0], drawn[1]), (drawn[2], drawn[3])):
        if len(results) >= wanted:
            break
        radius = _single(x)
        radius *= _INV32
        radius += _INV33
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        # One fused multiply-add on the card: the product is exact in float64.
        angle = (_single(y).astype(np.float64) * float(_INV32_2PI) + float(_INV32_2PI) / 2).astype(np.float32)
        results.append(np.sin(angle) * radius)
        if len(results) < wanted:
            results.append(np.cos(angle) * radius)
    return results


def _fifty_three_bits(low: Array, high: Array) -> Array:
    """`_curand_uniform_double_hq`'s integer, below 2^53, as float64."""
    joined: Array = (low ^ (high.astype(np.uint64) << np.uint64(21))).astype(np.float64)
    return joined


def uniform_double(drawn: Words, wanted: int) -> list[Array]:
    """`curand_uniform2_double`: float64 in (0, 1]."""
    pairs = ((drawn[0], drawn[1]), (drawn[2], drawn[3]))[:wanted]
    return [_fifty_three_bits(low, high) * 2.0**-53 + 2.0**-54 for low, high in pairs]


def normal_double(drawn: Words, wanted: int) -> list[Array]:
    """`curand_normal2_double`: float64, Box–Muller on 53 bits each."""
    radius = np.sqrt(-2.0 * np.log(_fifty_three_bits(drawn[0], drawn[1]) * 2.0**-53 + 2.0**-54))
    turns = _fifty_three_bits(drawn[2], drawn[3]) * 2.0**-52 + 2.0**-53  # in units of π, as `sincospi` takes it
    nearest = np.rint(turns)
    rest = np.pi * (turns - nearest)
    radius[nearest == 1] *= -1  # both sin and cos change their sign half a turn on
    return [np.sin(rest) * radius, np.cos(rest) * radius][:wanted]


def bits32(drawn: Words, wanted: int) -> list[Array]:
    """`curand4`: the words."""
    return list(drawn[:wanted])


def bits64(drawn: Words, wanted: int) -> list[Array]:
    """Words in pairs, the first one above (DistributionTemplates.h: random_from_to_kernel)."""
    pairs = ((drawn[0], drawn[1]), (drawn[2], drawn[3]))[:wanted]
    return [(high.astype(np.uint64) << np.uint64(32)) | low for high, low in pairs]
