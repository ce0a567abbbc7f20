"""What a kernel's accesses cost: sectors, bank conflicts, caches, occupancy, time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.kernel_model.accesses import AccessLog
from fakegpu_lab.hardware.kernel_model.launch_time import launch_time
from fakegpu_lab.hardware.kernel_model.occupancy import occupancy
from fakegpu_lab.hardware.kernel_model.shared_banks import wavefronts

LANES = np.arange(32)


def logged(addresses, itemsize=4, kind="load", space="global", **options):
    log = AccessLog(**options)
    log.add(kind, space, np.asarray(addresses), itemsize)
    return log.summary()


@pytest.mark.parametrize(
    ("stride", "sectors"), [(4, 4), (8, 8), (16, 16), (32, 32), (128, 32), (0, 1)], ids=lambda value: str(value)
)
def test_sectors_of_one_request_follow_the_stride(stride, sectors):
    seen = logged(LANES * stride)
    assert (seen.requests, seen.sectors_per_request) == (1, sectors)
    assert seen.bytes_loaded == 128


def test_a_request_that_is_not_aligned_touches_one_sector_more():
    assert logged(LANES * 4 + 4).sectors_per_request == 5


def test_vector_accesses_move_512_bytes_with_one_request():
    seen = logged(LANES * 16, itemsize=16)
    assert (seen.sectors_per_request, seen.lines[0].wavefronts, seen.lines[0].efficiency) == (16, 4, 1.0)


def test_a_warp_whose_lanes_are_all_off_makes_no_request():
    assert logged([[-1] * 32, [0, *[-1] * 31]]).requests == 1


addresses = st.lists(st.integers(-1, 5000), min_size=32, max_size=32)


@given(st.lists(addresses, min_size=1, max_size=5), st.sampled_from([1, 2, 4, 8, 16]))
@settings(max_examples=100, deadline=None)
def test_sectors_are_those_that_a_set_would_count(rows, itemsize):
    expected = sum(
        len({byte >> 5 for lane in row if lane >= 0 for byte in range(lane, lane + itemsize)}) for row in rows
    )
    assert logged(rows, itemsize).sectors == expected


@given(addresses)
@settings(max_examples=100, deadline=None)
def test_bank_conflicts_are_those_that_a_dictionary_would_count(row):
    banks: dict[int, set[int]] = {}
    for lane in row:
        if lane >= 0:
            banks.setdefault((lane >> 2) % 32, set()).add(lane >> 2)
    expected = max((len(words) for words in banks.values()), default=1)
    row_array = np.array([row])
    assert wavefronts(row_array, row_array >= 0, 4).tolist() == [expected]


@given(st.permutations(range(32)), st.integers(0, 31))
def test_a_permutation_of_neighbours_has_no_conflict_wherever_it_begins(order, offset):
    assert logged((np.array(order) + offset) * 4, space="shared").bank_conflicts == 0


def test_a_column_of_a_32_wide_tile_conflicts_32_ways_and_padding_ends_it():
    assert logged(LANES * 32 * 4, space="shared").bank_conflicts == 31
    assert logged(LANES * 33 * 4, space="shared").bank_conflicts == 0
    assert logged(LANES * 0, space="shared").bank_conflicts == 0  # one word for all: a broadcast


def test_dram_sees_a_sector_once_while_l2_holds_it():
    log = AccessLog(l2_bytes=2**20)
    for block in range(8):
        log.add("load", "global", (np.arange(1024).reshape(-1, 32)) * 4, 4, who=block)
    seen = log.summary()
    assert (seen.bytes_loaded, seen.l2_bytes, seen.dram_read_bytes) == (8 * 4096, 8 * 4096, 4096)


def test_what_does_not_fit_into_l2_is_read_again():
    log = AccessLog(l2_bytes=2**16)
    for block in range(2):
        log.add("load", "global", (np.arange(2**16).reshape(-1, 32)) * 4, 4, who=block)
        log.add("store", "global", (2**20 + np.arange(32)) * 4, 4, who=block)
    assert log.summary().dram_read_bytes == 2 * 2**18


def test_l1_serves_what_a_block_reads_again():
    log = AccessLog()
    for _ in range(4):
        log.add("load", "global", LANES * 4, 4, who=7)
    assert (log.summary().sectors, log.summary().l2_bytes) == (16, 128)


def test_sampling_a_quarter_of_the_blocks_shows_the_figures_of_all():
    log = AccessLog()
    log.add("load", "global", LANES * 4, 4)
    log.flops(10)
    seen = log.summary(part=0.25)
    assert (seen.requests, seen.bytes_loaded, seen.dram_read_bytes, seen.flops) == (4, 512, 512, 40)


# NVIDIA's occupancy calculator
@pytest.mark.parametrize(
    ("card", "threads", "registers", "shared", "blocks", "limit"),
    [
        ("a100", 256, 32, 0, 8, "threads"),
        ("a100", 256, 64, 0, 4, "registers"),
        ("a100", 256, 40, 0, 6, "registers"),
        ("a100", 32, 32, 0, 32, "blocks"),
        ("a100", 128, 32, 48 * 1024, 3, "shared memory"),
        ("t4", 1024, 32, 0, 1, "threads"),
        ("t4", 256, 32, 32 * 1024, 2, "shared memory"),
        ("rtx4090", 256, 32, 0, 6, "threads"),
        ("h100", 1024, 65, 0, 0, "registers"),
    ],
)
def test_occupancy_is_that_of_nvidias_calculator(card, threads, registers, shared, blocks, limit):
    full = occupancy(gpu(card), threads, registers, shared)
    assert (full.blocks, full.limited_by) == (blocks, limit)


def streamed(card="a100", grid=10_000, registers=32, nbytes=2**28):
    log = AccessLog(l2_bytes=2**20)
    log.add("load", "global", np.arange(2**16).reshape(-1, 32) * 16, 16)
    access = replace(log.summary(part=2**20 / nbytes), grid=(grid,), threads=128, registers=registers)
    return launch_time(gpu(card), access, occupancy(gpu(card), 128, registers))


def test_a_kernel_that_streams_takes_the_time_of_an_op_that_streams():
    time = streamed()
    assert time.bound_by == "DRAM"
    assert time.ns == pytest.approx(gpu_streaming(2**28), rel=0.02)


def gpu_streaming(nbytes):
    from fakegpu_lab.hardware.time.roofline import Roofline

    return Roofline(gpu("a100")).streaming(nbytes)


def test_one_block_uses_one_multiprocessor():
    assert streamed(grid=1).ns > 20 * streamed().ns


N = 4096
A, B = 0, 4 * N * N


def product(card, kind, steps=512):
    """The GFLOP/s of a product of 4096×4096 matrices with a thread for each element; 1024 threads a block.

    One block is logged, and the first of its steps along the sum; the grid has 128×128 blocks.
    """
    log = AccessLog(gpu(card).l2_bytes)
    warp, lane = np.arange(32)[:, None], np.arange(32)[None]
    for k in range(steps):
        if kind == "tiled":  # 32×32 tiles in shared memory: one load of each element, 32 reads
            if k % 32 == 0:
                log.add("load", "global", A + 4 * (warp * N + k + lane), 4)
                log.add("load", "global", B + 4 * ((k + warp) * N + lane), 4)
                log.add("store", "shared", 4 * (warp * 32 + lane), 4)
                log.add("store", "shared", 4096 + 4 * (warp * 32 + lane), 4)
            log.add("load", "shared", 4 * (warp * 32 + k % 32 + 0 * lane), 4)
            log.add("load", "shared", 4096 + 4 * (0 * warp + k % 32 * 32 + lane), 4)
        else:
            row, column = (warp, lane) if kind == "coalesced" else (lane, warp)
            log.add("load", "global", A + 4 * (row * N + k + 0 * column), 4)
            log.add("load", "global", B + 4 * (k * N + column + 0 * row), 4)
        log.flops(2 * 1024)
    access = replace(log.summary(part=steps / N / 128**2), grid=(128, 128, 1), threads=1024)
    return 2 * N**3 / launch_time(gpu(card), access, occupancy(gpu(card), 1024, 32, 8192)).ns


# siboehm.com/articles/22/CUDA-MMM (A6000; A100: its README of February 2023), github.com/jhlee508/matmul-cuda (V100),
# github.com/1am9trash/CUDA_SGEMM (RTX 3090), github.com/annanyapr/Fast-CUDA-Kernels (RTX 4090)
PUBLISHED = {
    ("rtxa6000", "naive"): 309.0,
    ("rtxa6000", "coalesced"): 1986.5,
    ("rtxa6000", "tiled"): 2980.3,
    ("v100", "naive"): 245.7,
    ("v100", "coalesced"): 2311.7,
    ("v100", "tiled"): 4263.2,
    ("a100", "naive"): 292.0,
    ("a100", "coalesced"): 3115.7,
    ("a100", "tiled"): 5448.6,
    ("rtx3090", "naive"): 306.6,
    ("rtx3090", "coalesced"): 2040.1,
    ("rtx3090", "tiled"): 2869.5,
    ("rtx4090", "naive"): 635.3,
    ("rtx4090", "coalesced"): 4887.4,
    ("rtx4090", "tiled"): 6592.0,
}


@pytest.mark.parametrize(("card", "kind"), PUBLISHED)
def test_products_without_register_tiles_are_as_fast_as_published(card, kind):
    assert product(card, kind, steps=128) == pytest.approx(PUBLISHED[card, kind], rel=0.3)


def narrow_product(tile_of_a):
    """The GB/s of A·B on a V100, A with 32 columns and B with 32 rows; each matrix counts once."""
    log = AccessLog(gpu("v100").l2_bytes)
    warp, lane = np.arange(32)[:, None], np.arange(32)[None]
    if tile_of_a:
        log.add("load", "global", A + 4 * (warp * 32 + lane), 4)
        log.add("store", "shared", 4 * (warp * 32 + lane), 4)
    for k in range(32):
        if tile_of_a:
            log.add("load", "shared", 4 * (warp * 32 + k + 0 * lane), 4)
        else:
            log.add("load", "global", A + 4 * (warp * 32 + k + 0 * lane), 4)
        log.add("load", "global", B + 4 * (k * N + lane + 0 * warp), 4)
        log.flops(2 * 1024)
    log.add("store", "global", 2 * B + 4 * (warp * N + lane), 4)
    access = replace(log.summary(part=1 / 128**2), grid=(128, 128, 1), threads=1024)
    nbytes = 4 * (2 * 32 * N + N * N)
    return nbytes / launch_time(gpu("v100"), access, occupancy(gpu("v100"), 1024, 32, 4096 * tile_of_a)).ns


@pytest.mark.parametrize(("tile_of_a", "published"), [(False, 119.9), (True, 144.4)])
def test_requests_to_global_memory_take_as_long_in_products_that_no_constant_was_fitted_to(tile_of_a, published):
    """CUDA C++ Best Practices Guide, "Shared Memory in Matrix Multiplication (C=AB)", table 2."""
    assert narrow_product(tile_of_a) == pytest.approx(published, rel=0.15)
