"""How long kernels take, as a model should behave. tests/fidelity has what cards were measured to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.time.efficiency import products
from fakegpu_lab.hardware.time.roofline import FLOOR_NS, Roofline

sizes = st.integers(1, 8192)


def tflops(card: str, fmt: str, n: int) -> float:
    return 2 * n**3 / Roofline(gpu(card)).gemm(fmt, n, n, n) / 1e3


@pytest.mark.parametrize("to_device", [True, False])
@pytest.mark.parametrize("pinned", [True, False])
def test_a_small_copy_is_all_latency(to_device: bool, pinned: bool) -> None:
    links = Links(parse_spec("a100"))
    small, large = (nbytes / links.host_ns(0, nbytes, to_device=to_device, pinned=pinned) for nbytes in (4, 2**28))
    assert small < large / 1000


def test_formats_are_faster_by_the_cards_ratio() -> None:
    """As far as kernels reach it: of the tensor cores' peak less than of the others'."""
    for card, fmt in (("a100", "tf32"), ("a100", "fp16"), ("a100", "bf16"), ("v100", "fp16"), ("h100", "bf16")):
        peaks, profile = gpu(card).peak_flops.given(), gpu(card)
        reached = products(profile, fmt) / products(profile, "fp32")
        assert tflops(card, fmt, 8192) / tflops(card, "fp32", 8192) == pytest.approx(
            reached * peaks[fmt] / peaks["fp32"], rel=0.15
        )
        assert 0.6 < reached <= 1.1
    assert tflops("v100", "tf32", 4096) == tflops("v100", "fp32", 4096)  # there is no TF32 on a V100


def test_a_cards_power_bounds_its_products() -> None:
    l4, l40 = gpu("l4"), gpu("l40")
    assert products(l4, "fp16") * l4.peak("fp16") < 60e12  # 72 W
    assert products(l40, "fp16") > 1.5 * products(l4, "fp16")
    assert products(gpu("h100-pcie"), "bf16") < products(gpu("h100"), "bf16")
    assert products(l4, "fp64") == products(gpu("h100"), "fp64")


def test_memory_is_reached_by_enough_multiprocessors() -> None:
    """What a kernel reads that is in L2 already comes quicker; what no L2 holds, at the memory's rate or the card's."""
    card = Roofline(gpu("rtx4090"))
    nbytes = 16 * 2**20
    assert nbytes / card.streaming(nbytes) > 2 * 2**30 / card.streaming(2**30)
    a100 = Roofline(gpu("a100"))
    assert 2**32 / a100.streaming(2**32) == pytest.approx(0.8 * 2039, rel=0.1)
    a40 = Roofline(gpu("a40"))
    assert 2**32 / a40.streaming(2**32) > 0.85 * 696


def test_small_products_do_not_reach_peak() -> None:
    assert tflops("a100", "bf16", 256) < 0.1 * tflops("a100", "bf16", 8192)
    assert tflops("a100", "bf16", 1024) < 0.6 * tflops("a100", "bf16", 8192)


def test_one_tile_more_than_a_wave_costs_another_wave() -> None:
    card = Roofline(gpu("a100"))
    full = card.gemm("fp16", 128 * 108, 256, 4096)
    assert card.gemm("fp16", 128 * 108 + 1, 256, 4096) > 1.2 * full


def test_rows_that_are_not_aligned_are_slow() -> None:
    card = Roofline(gpu("a100"))
    assert card.gemm("fp16", 4096, 4095, 4096, aligned=False) > 1.5 * card.gemm("fp16", 4096, 4096, 4096)


def test_memory_decides_where_there_is_little_to_compute() -> None:
    card = Roofline(gpu("a100"))
    nbytes = 2**30
    assert card.gemm("fp16", 16, 4096, 4096, nbytes=nbytes) == card.arithmetic("fp16", 1.0, nbytes)
    assert card.gather(nbytes) > 1.5 * card.streaming(nbytes)


@given(sizes, sizes, sizes, st.integers(1, 64))
def test_no_product_is_faster_than_the_card(m: int, n: int, k: int, batch: int) -> None:
    card = Roofline(gpu("a100"))
    ns = card.gemm("fp16", m, n, k, batch)
    assert ns >= FLOOR_NS
    assert 2 * m * n * k * batch / ns <= gpu("a100").peak("fp16") / 1e9
    assert 0 < card.gemm_share(m, n, batch) <= 1


@given(sizes, sizes, sizes)
def test_more_of_the_sum_takes_longer(m: int, n: int, k: int) -> None:
    card = Roofline(gpu("t4"))
    assert card.gemm("fp16", m, n, k + 512) >= card.gemm("fp16", m, n, k) * 0.7  # split-K may come in between


@given(st.integers(0, 2**34))
def test_streaming_is_monotonic(nbytes: int) -> None:
    card = Roofline(gpu("rtx4090"))
    assert FLOOR_NS <= card.streaming(nbytes) <= card.streaming(nbytes + 1024)
    assert 0 < card.share(nbytes) <= 1
