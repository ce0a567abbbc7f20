"""Philox 4×32-10 as cuRAND runs it, for all threads of a kernel at once.

A CUDA thread starts at ``curand_init(seed, thread, offset)``: key = seed, counter = (offset / 4, thread); each further
call of `curand4` adds one to the counter's first half and gives four 32-bit words (curand_philox4x32_x.h). PyTorch's
kernels stride over a tensor with a grid that the card's size caps (`Grid`), so a large tensor depends on the card.

The words are reproduced exactly, and so is everything computed from them by exact or correctly rounded arithmetic
(uniform numbers, integers). Normal numbers need a logarithm, a sine and a cosine: for float32, a card computes the last
two in its approximate units (`__sincosf`, absolute error about 2^-21), so the last digits may differ from a real
card's.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fakegpu_lab.hardware.philox.words import CHUNK, of_one_thread, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fakegpu_lab.hardware.philox.words import Array, Words

    Lanes = Callable[[Words, int], Sequence[Array]]

__all__ = [
    "BLOCK", "Grid", "Sink", "below", "bits32", "bits64", "consecutive", "fill", "grid", "interleaved", "normal",
    "normal_double", "uniform", "uniform_double", "words",
]  # fmt: skip

BLOCK = 256
"""Threads in a block of PyTorch's random kernels (DistributionTemplates.h: block_size_bound)."""


class Grid(NamedTuple):
    """The launch of a random kernel (DistributionTemplates.h: calc_execution_policy).

    Attributes
    ----------
    threads
        The threads of the whole grid.
    lanes
        Numbers that a thread makes from one `curand4`: 4, or 2 if each takes 64 bits.
    increment
        The advance of the generator's offset.
    """

    threads: int
    lanes: int
    increment: int


def grid(numel: int, lanes: int, sm_count: int, max_threads_per_sm: int) -> Grid:
    """The launch for `numel` > 0 elements on a card of that size."""
    blocks = min(sm_count * (max_threads_per_sm // BLOCK), -(-numel // BLOCK))
    threads = blocks * BLOCK
    return Grid(threads, lanes, ((numel - 1) // (threads * lanes) + 1) * 4)


class Sink(Protocol):
    """The destination of numbers: an array, or an object that converts them first. Threads write to it concurrently."""

    def __len__(self) -> int:
        """The number of elements."""

    def __setitem__(self, where: slice, numbers: Array, /) -> None:
        """Take the numbers of these elements; may overwrite the given array."""


class _Piece(NamedTuple):
    """The part of a kernel that some neighbouring threads compute: their words, and their first element."""

    counter: int
    first: int
    threads: int
    position: int
    lanes: int


def fill(out: Array | Sink, seed: int, offset: int, launch: Grid, lanes: Lanes, workers: int = 1) -> None:
    """Fill `out` (one dimension) as PyTorch's grid-stride kernel does.

    Thread t puts lane l of its call c into element ``(c · lanes + l) · threads + t``.

    Parameters
    ----------
    lanes
        Turns the words of many threads into their numbers: called with the words and the number of lanes, it returns
        an array for each lane.
    workers
        The number of host threads that may share the work.
    """
    numel = len(out)
    threads = launch.threads

    def work(pieces: Iterable[_Piece]) -> None:
        for counter, first, count, position, wanted in pieces:
            for lane, numbers in enumerate(lanes(words(seed, counter, first, count), wanted)):
                start = position + lane * threads
                if start >= numel:
                    break
                stop = min(start + count, numel)
                out[start:stop] = numbers[: stop - start]

    if numel <= CHUNK and numel <= threads:
        work((_Piece(offset // 4, 0, numel, 0, 1),))
        return
    pieces = [
        _Piece(offset // 4 + call, first, min(CHUNK, threads - first, numel - start - first), start + first,
               min(launch.lanes, -(-(numel - start) // threads)))
        for call, start in enumerate(range(0, numel, threads * launch.lanes))
        for first in range(0, min(threads, numel - start), CHUNK)
    ]  # fmt: skip
    _share(work, pieces, workers)


def interleaved(out: Array | Sink, seed: int, offset: int, lanes: Lanes, per_thread: int = 4, workers: int = 1) -> None:
    """Fill `out` (one dimension) as a kernel does whose thread t makes elements ``4 t … 4 t + 3`` from one `curand4`.

    With `per_thread` below 4 a thread leaves the rest of its words unused.
    """
    numel = len(out)

    def work(pieces: Iterable[_Piece]) -> None:
        for counter, first, count, position, wanted in pieces:
            stop = min(position + count * wanted, numel)
            for lane, numbers in enumerate(lanes(words(seed, counter, first, count), wanted)):
                out[position + lane : stop : wanted] = numbers[: -(-(stop - position - lane) // wanted)]

    pieces = [
        _Piece(offset // 4, start // per_thread, min(CHUNK, -(-(numel - start) // per_thread)), start, per_thread)
        for start in range(0, numel, CHUNK * per_thread)
    ]
    _share(work, pieces, workers)


def consecutive(out: Array, seed: int, position: int) -> None:
    """Fill `out` (one dimension) with the uniform numbers of thread 0 from its word `position` on."""
    counter, skipped = divmod(position, 4)
    end = skipped + len(out)  # in words from `counter`
    for start in range(0, end, 4 * CHUNK):
        stop = min(start + 4 * CHUNK, end)
        drawn = of_one_thread(seed, counter + start // 4, -(-(stop - start) // 4))
        numbers = np.stack(uniform(drawn, 4), axis=1).reshape(-1)
        first = max(start, skipped)
        out[first - skipped : stop - skipped] = numbers[first - start : stop - start]


def _share(work: Callable[[Iterable[_Piece]], None], pieces: list[_Piece], workers: int) -> None:
    """Share the work among several threads if there is enough: NumPy computes outside the interpreter's lock."""
    workers = min(workers, len(pieces) // 2)
    if workers < 2:
        work(pieces)
        return
    failures: list[BaseException] = []

    def share(mine: Iterable[_Piece]) -> None:
        try:
            work(mine)
        except BaseException as error:  # raised by the thread that waits
            failures.append(error)

    others = [threading.Thread(target=share, args=(islice(pieces, k, None, workers),)) for k in range(1, workers)]
    for other in others:
        other.start()
    share(islice(pieces, 0, None, workers))
    for other in others:
        other.join()
    if failures:
        raise failures[0]


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
    for x, y in ((drawn[0], drawn[1]), (drawn[2], drawn[3]))[: (wanted + 1) // 2]:
        radius = _single(x)
        radius *= _INV32
        radius += _INV33
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        # One fused multiply-add on the card: the product is exact in float64.
        angle = _single(y)
        exact = angle.astype(np.float64)
        exact *= float(_INV32_2PI)
        exact += float(_INV32_2PI) / 2
        angle[:] = exact
        sine = np.sin(angle)
        sine *= radius
        results.append(sine)
        if len(results) < wanted:
            np.cos(angle, out=angle)
            angle *= radius
            results.append(angle)
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
    """`curand4`: the words themselves."""
    return list(drawn[:wanted])


def bits64(drawn: Words, wanted: int) -> list[Array]:
    """Words in pairs, the first as the upper half (DistributionTemplates.h: random_from_to_kernel)."""
    pairs = ((drawn[0], drawn[1]), (drawn[2], drawn[3]))[:wanted]
    return [(high.astype(np.uint64) << np.uint64(32)) | low for high, low in pairs]


def below(bound: float) -> Lanes:
    """Whether `curand_uniform4`'s number is below `bound`, a float32 or float64: booleans, directly from the words."""
    count = _words_below(bound)
    if count == 0:
        return lambda drawn, wanted: [np.zeros(word.shape, np.bool_) for word in drawn[:wanted]]
    last = np.uint32(count - 1)
    return lambda drawn, wanted: [word <= last for word in drawn[:wanted]]


@lru_cache(maxsize=256)
def _words_below(bound: float) -> int:
    """How many words give a uniform number below `bound`: the numbers never fall as the words rise."""
    low, high = 0, 2**32
    while low < high:
        middle = (low + high) // 2
        if float(np.float32(middle) * _INV32 + _INV33) < bound:
            low = middle + 1
        else:
            high = middle
    return low
