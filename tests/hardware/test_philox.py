"""Philox 4×32-10: the generator's own test vectors, and the vectorised code against one counter at a time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakegpu_lab.hardware.philox import curand

U32 = st.integers(0, 2**32 - 1)


def slowly(counter: tuple[int, int, int, int], seed: int) -> tuple[int, ...]:
    """curand_philox4x32_x.h, one counter in Python integers."""
    a, b, c, d = counter
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        first, second = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (
            second >> 32 ^ b ^ low,
            second & 0xFFFFFFFF,
            first >> 32 ^ d ^ high,
            first & 0xFFFFFFFF,
        )
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


# https://github.com/DEShawResearch/random123/blob/main/tests/kat_vectors ("philox4x32 10")
KNOWN = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "seed", "expected"), KNOWN)
def test_known_answers(counter: tuple[int, int, int, int], seed: int, expected: tuple[int, ...]) -> None:
    assert slowly(counter, seed) == expected
    first = counter[2] | counter[3] << 32
    if first + 1 < 2**64:
        words = curand.words(seed, counter[0] | counter[1] << 32, first, 1)
        assert tuple(int(word[0]) for word in words) == expected


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**62), st.integers(0, 2**33), st.integers(1, 70), st.integers(0, 2**9)
)
def test_words_of_many_threads_are_those_of_each(seed: int, counter: int, first: int, count: int, pick: int) -> None:
    words = curand.words(seed, counter, first, count)
    thread = first + pick % count
    expected = slowly((counter & 0xFFFFFFFF, counter >> 32, thread & 0xFFFFFFFF, thread >> 32), seed)
    assert tuple(int(word[pick % count]) for word in words) == expected


def strided(numel: int, seed: int, offset: int, grid: curand.Grid, index: int) -> int:
    """The word for one element, by the loop of `distribution_elementwise_grid_stride_kernel`."""
    thread = index % grid.threads
    turn = index // grid.threads
    counter = offset // 4 + turn // grid.lanes
    return slowly((counter, 0, thread, 0), seed)[turn % grid.lanes]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60_000), st.integers(1, 12), st.sampled_from([1024, 1536, 2048]), st.integers(0, 1000), st.data())
def test_a_grid_stride_gives_each_element_its_word(
    numel: int, sm_count: int, threads_per_sm: int, quarter_offset: int, data: st.DataObject
) -> None:
    grid = curand.grid(numel, 4, sm_count, threads_per_sm)
    assert grid.threads == 256 * min(sm_count * threads_per_sm // 256, (numel + 255) // 256)
    out = np.empty(numel, np.uint32)
    curand.fill(out, 7, 4 * quarter_offset, grid, curand.bits32)
    for index in {0, numel - 1, data.draw(st.integers(0, numel - 1))}:
        assert out[index] == strided(numel, 7, 4 * quarter_offset, grid, index)
    calls = -(-numel // (grid.threads * 4))
    assert grid.increment == 4 * calls


@pytest.mark.parametrize("per_thread", [1, 2, 4])
@pytest.mark.parametrize("numel", [1, 7, 33_000])
def test_neighbours_of_a_thread(numel: int, per_thread: int) -> None:
    out = np.empty(numel, np.uint32)
    curand.interleaved(out, 3, 8, curand.bits32, per_thread)
    for index in {0, numel // 2, numel - 1}:
        assert out[index] == slowly((2, 0, index // per_thread, 0), 3)[index % per_thread]


def test_uniform_numbers_are_those_of_curand() -> None:
    """x · 2^-32 + 2^-33 in float32, in (0, 1]; 53 bits for float64."""
    words = tuple(np.array([w, 0xFFFFFFFF, 0], np.uint32) for w in (0x80000001, 5, 1, 0))
    assert curand.uniform(words, 1)[0].tolist() == [0.5, 1.0, 2.0**-33]  # type: ignore[arg-type]
    first, second = curand.uniform_double(words, 2)  # type: ignore[arg-type]
    assert first[0] == (0x80000001 ^ 5 << 21) * 2.0**-53 + 2.0**-54
    assert second.max() <= 1
    assert second.min() > 0


def test_normal_numbers_are_normal() -> None:
    grid = curand.grid(200_000, 4, 4, 1024)
    for lanes, kind in ((curand.normal, np.float32), (curand.normal_double, np.float64)):
        out = np.empty(200_000, kind)
        curand.fill(out, 1, 0, grid._replace(lanes=4 if kind is np.float32 else 2), lanes)
        assert abs(out.mean()) < 0.01
        assert abs(out.std() - 1) < 0.01
        assert np.isfinite(out).all()


def test_double_precision_box_muller() -> None:
    words = tuple(np.array([w], np.uint32) for w in (123456789, 987654321, 192837465, 564738291))
    u = (int(words[0][0]) ^ int(words[1][0]) << 21) * 2.0**-53 + 2.0**-54
    v = (int(words[2][0]) ^ int(words[3][0]) << 21) * 2.0**-52 + 2.0**-53
    sine, cosine = curand.normal_double(words, 2)  # type: ignore[arg-type]
    assert sine[0] == pytest.approx(np.sqrt(-2 * np.log(u)) * np.sin(np.pi * v), rel=1e-12)
    assert cosine[0] == pytest.approx(np.sqrt(-2 * np.log(u)) * np.cos(np.pi * v), rel=1e-12)


@pytest.mark.parametrize("lanes", [curand.uniform, curand.normal, curand.below(0.3)])
def test_threads_of_the_host_share_the_work(lanes: curand.Lanes) -> None:
    grid = curand.grid(400_000, 4, 40, 1024)
    alone, shared = np.empty((2, 2, 400_000), np.float32)
    for out, workers in ((alone, 1), (shared, 3)):
        curand.fill(out[0], 5, 12, grid, lanes, workers)
        curand.interleaved(out[1], 5, 12, lanes, 4, workers)
    assert np.array_equal(alone, shared)


def test_what_fails_in_a_thread_of_the_host_is_told() -> None:
    caller = threading.get_ident()

    def failing(drawn: Any, wanted: int) -> Any:
        if threading.get_ident() != caller:
            raise MemoryError("no room")
        return curand.uniform(drawn, wanted)

    out = np.empty(400_000, np.float32)
    with pytest.raises(MemoryError, match="no room"):
        curand.fill(out, 5, 12, curand.grid(400_000, 4, 40, 1024), failing, 2)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**64 - 1), st.lists(st.tuples(st.integers(0, 40), st.integers(1, 256)), max_size=25))
def test_words_computed_ahead_are_those_of_their_counter(seed: int, draws: list[tuple[int, int]]) -> None:
    """Programs that draw a few numbers at a time, go back, and go on."""
    for counter, count in draws:
        words = curand.words(seed, counter, 0, count)
        assert {len(word) for word in words} == {count}
        last = count - 1
        assert tuple(int(word[last]) for word in words) == slowly((counter, 0, last, 0), seed)


@given(st.floats(0, 1, width=32) | st.floats(0, 1))
def test_below_compares_uniform_numbers(bound: float) -> None:
    near = (np.arange(-300, 300) + int(bound * 2**32)).clip(0, 2**32 - 1).astype(np.uint32)
    drawn = (near,) * 4
    expected = curand.uniform(drawn, 1)[0].astype(np.float64) < bound
    assert curand.below(bound)(drawn, 1)[0].tolist() == expected.tolist()
