"""Shared memory has 32 banks of 4-byte words; lanes that need different words of one bank wait for each other.

Lanes that access the same word share it. A request of 8 bytes for each lane takes two turns (half a warp each), one of
16 bytes four (CUDA C++ Programming Guide, "Shared Memory", since compute capability 5.x; NVIDIA's forum on vector
accesses). A real card sometimes does better when half-warps read the same words; that is not modelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BANKS = 32
_OFF = np.iinfo(np.int64).max


def wavefronts(addresses: NDArray[np.int64], active: NDArray[np.bool_], itemsize: int) -> NDArray[np.int64]:
    """The turns that each request takes: 1 for 4-byte words without a conflict.

    Parameters
    ----------
    addresses, active
        Shape (requests, 32): bytes from the start of the block's shared memory; whether the lane takes part.
    itemsize
        Bytes for each lane.
    """
    words = max(itemsize // 4, 1)
    requests = len(addresses)
    parts = addresses.reshape(requests * words, 32 // words) >> 2
    taking = active.reshape(requests * words, 32 // words)
    if words > 1:
        parts = (parts[:, :, None] + np.arange(words)).reshape(len(parts), 32)
        taking = np.repeat(taking, words, axis=1)
    parts = np.sort(np.where(taking, parts, _OFF), axis=1)
    distinct = parts != _OFF
    distinct[:, 1:] &= parts[:, 1:] != parts[:, :-1]
    row = np.nonzero(distinct)[0]
    in_bank = np.bincount(row * BANKS + parts[distinct] % BANKS, minlength=len(parts) * BANKS)
    turns = np.maximum(in_bank.reshape(-1, BANKS).max(axis=1), 1)
    return np.asarray(turns.reshape(requests, words).sum(axis=1))
