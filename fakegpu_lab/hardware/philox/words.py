"""Philox 4×32-10: the 32-bit words, for many threads at once, or for few threads and several calls at once.

Constants and rounds are those of curand_philox4x32_x.h; `philox` turns the words into numbers.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Words = tuple[Array, Array, Array, Array]

CHUNK = 16384
"""Threads computed at a time: the arrays of one round stay in the processor's cache."""

_FEW = 256  # up to this many threads, words are made for several calls at once
_AHEAD = 4096  # the most counters computed ahead
_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = 0xFFFFFFFF


class _Workspace(threading.local):
    """Arrays that all calls reuse."""

    def __init__(self) -> None:
        self.even = np.empty((2, CHUNK), dtype=np.uint32)
        self.products = np.empty((2, CHUNK), dtype=np.uint64), np.empty((2, CHUNK), dtype=np.uint64)
        self.counting = np.arange(CHUNK, dtype=np.uint64)


_workspace = _Workspace()


@lru_cache(maxsize=64)
def _keys(seed: int) -> tuple[Array, ...]:
    """The key of each round, as a column."""
    low, high = seed & _MASK, seed >> 32 & _MASK
    return tuple(
        np.array([[(low + i * _WEYL[0]) & _MASK], [(high + i * _WEYL[1]) & _MASK]], dtype=np.uint32) for i in range(10)
    )


def rounds(even: Array, odd: Array, seed: int) -> Words:
    """Ten rounds over at most 16384 counters at once.

    Parameters
    ----------
    even, odd
        uint32 of shape (2, n): words 0 and 2, and 1 and 3, of each counter. `even` is overwritten.
    seed
        The 64-bit key.

    Returns
    -------
    The four words, uint32 of shape (n,): views of arrays that the next call overwrites.
    """
    multiply, xor = np.multiply, np.bitwise_xor
    count = even.shape[1]
    # The halves of a product are views of it; they are swapped between a thread's two products.
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


class _Ahead(NamedTuple):
    """The words of threads 0 … width - 1 at `calls` counters from `counter`, of shape (calls, width)."""

    counter: int
    calls: int
    width: int
    words: Words


_ahead: dict[int, _Ahead] = {}
"""By seed."""


def words(seed: int, counter: int, first: int, count: int) -> Words:
    """The four words of threads `first` … `first + count - 1` (at most 16384) at that counter (offset / 4 + calls).

    They are read-only, or views of arrays that the next call overwrites.
    """
    if count <= _FEW and first == 0:
        known = _ahead.get(seed)
        if known is None or not 0 <= counter - known.counter < known.calls or count > known.width:
            known = _look_ahead(seed, counter, count, known)
        a, b, c, d = known.words
        call = counter - known.counter
        return a[call, :count], b[call, :count], c[call, :count], d[call, :count]
    even = _workspace.even[:, :count]
    odd = np.zeros((2, count), dtype=np.uint32)
    even[0] = counter & _MASK
    odd[0] = counter >> 32 & _MASK
    threads = _workspace.counting[:count] + np.uint64(first)
    even[1] = threads  # its lower half
    if first + count > _MASK:
        odd[1] = threads >> np.uint64(32)
    return rounds(even, odd, seed)


def of_one_thread(seed: int, counter: int, count: int) -> Words:
    """The four words of thread 0 at each of `count` counters (at most 16384) from `counter` on."""
    counters = _workspace.counting[:count] + np.uint64(counter)
    even = _workspace.even[:, :count]
    odd = np.zeros((2, count), dtype=np.uint32)
    even[0] = counters  # its lower half
    odd[0] = counters >> np.uint64(32)
    even[1] = 0
    return rounds(even, odd, seed)


def _look_ahead(seed: int, counter: int, count: int, known: _Ahead | None) -> _Ahead:
    """Compute the words of the next calls for a program that keeps drawing few numbers: NumPy's calls cost the most.

    Each time that all of them were used, twice as many calls are computed.
    """
    calls = max(1, _FEW // 2 // count)
    if known is not None and counter == known.counter + known.calls:
        count = max(count, known.width)
        calls = max(calls, 2 * known.calls)
    calls = min(calls, _AHEAD // count, 2**64 - counter)
    counters = np.arange(calls, dtype=np.uint64) + np.uint64(counter)
    even = np.empty((2, calls, count), dtype=np.uint32)
    odd = np.zeros((2, calls, count), dtype=np.uint32)
    even[0] = counters[:, None]  # its lower half
    odd[0] = (counters >> np.uint64(32))[:, None]
    even[1] = _workspace.counting[:count]
    made = np.stack(rounds(even.reshape(2, -1), odd.reshape(2, -1), seed)).reshape(4, calls, count)
    made.flags.writeable = False
    if len(_ahead) >= 16:
        _ahead.clear()
    known = _ahead[seed] = _Ahead(counter, calls, count, (made[0], made[1], made[2], made[3]))
    return known
