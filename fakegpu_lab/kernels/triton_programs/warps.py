"""Cuts a block of addresses into the requests of warps, as Triton's default layout of blocks does.

Triton's `blocked` layout gives neighbouring elements along the contiguous axis to one thread, up to 16 bytes, and the
next ones to the next thread (lib/Dialect/TritonGPU/Transforms/Coalesce.cpp). Which axis is contiguous, and how many
elements one access has, its compiler proves from divisibilities; here the addresses themselves tell. So an access may
be vectorised here that the compiler could not prove to be. Not modelled: threads that load the same element because
the block has fewer elements than threads, and layouts that later steps of the compiler change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Addresses = NDArray[np.int64]

WARP = 32
_WIDEST = 16


def cut(
    addresses: Addresses, mask: NDArray[np.bool_] | None, itemsize: int, threads: int
) -> tuple[Addresses, int, int]:
    """The requests for blocks of addresses.

    Parameters
    ----------
    addresses
        The first axis is that of the programs; the others are the block's.
    mask
        Of the same shape; None if all elements are accessed.
    itemsize
        Bytes of an element.
    threads
        Threads of a program.

    Returns
    -------
    tuple
        Addresses of shape (requests, 32), −1 where a lane is off, the bytes of each lane, and the requests of one
        program. The first program's requests come first.
    """
    programs = len(addresses)
    axis = _contiguous_axis(addresses, itemsize)
    flat = np.moveaxis(addresses, axis, -1).reshape(programs, -1) if addresses.ndim > 1 else addresses[:, None]
    on = None
    if mask is not None:
        on = np.moveaxis(mask, axis, -1).reshape(programs, -1) if mask.ndim > 1 else mask[:, None]
    elements = flat.shape[1]
    width = 1
    while width * 2 * itemsize <= _WIDEST and width * 2 * threads <= elements:
        width *= 2
    while width > 1 and not _vectors(flat, on, itemsize, width):
        width //= 2
    if on is not None:
        flat = np.where(on, flat, -1)
    lanes = flat[:, ::width]
    missing = -lanes.shape[1] % WARP
    if missing:
        lanes = np.pad(lanes, ((0, 0), (0, missing)), constant_values=-1)
    return lanes.reshape(-1, WARP), itemsize * width, lanes.shape[1] // WARP


def _contiguous_axis(addresses: Addresses, itemsize: int) -> int:
    """The axis of the block along which neighbours are neighbours in memory; else the last one."""
    for axis in range(addresses.ndim - 1, 0, -1):
        if addresses.shape[axis] > 1:
            at = [0] * addresses.ndim
            at[axis] = 1
            if int(addresses[tuple(at)]) - int(addresses[(0,) * addresses.ndim]) == itemsize:
                return axis
    return max(addresses.ndim - 1, 0)


def _vectors(flat: Addresses, on: NDArray[np.bool_] | None, itemsize: int, width: int) -> bool:
    """Whether each run of `width` elements is one aligned access, and is masked off wholly or not at all."""
    first = flat[:, ::width]
    good = (flat[:, width - 1 :: width] - first == (width - 1) * itemsize) & (first % (width * itemsize) == 0)
    for other in range(1, width - 1):
        good &= flat[:, other::width] - first == other * itemsize
    if on is None:
        return bool(good.all())
    some = on[:, ::width]
    for other in range(1, width):
        if not np.array_equal(some, on[:, other::width]):
            return False
    return bool((good | ~some).all())
