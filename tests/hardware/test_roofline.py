"""How long kernels take: against what cards were measured to do, and as a model should behave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue import gpu
from fakegpu_lab.hardware.links import Links
from fakegpu_lab.hardware.roofline import FLOOR_NS, Roofline
from fakegpu_lab.hardware.spec import parse_spec

sizes = st.integers(1, 8192)


def tflops(card: str, fmt: str, n: int) -> float:
    return 2 * n**3 / Roofline(gpu(card)).gemm(fmt, n, n, n) / 1e3


@pytest.mark.parametrize(
    ("card", "fmt", "measured"),
    [("a100", "bf16", 271), ("a100-pcie-80gb", "bf16", 253), ("h100", "bf16", 794.5), ("h100", "fp8", 1403)],
)
def test_large_products(card: str, fmt: str, measured: float) -> None:
    assert tflops(card, fmt, 8192) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("card", "measured"), [("a100-40gb", 1153), ("v100", 713), ("t4", 234)])
def test_copies_on_the_device(card: str, measured: float) -> None:
    nbytes = 256 * 2**20
    assert 2 * nbytes / Roofline(gpu(card)).streaming(2 * nbytes) == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(
    ("to_device", "pinned", "measured"),
    [(True, True, 25.7), (True, False, 10.0), (False, True, 25.8), (False, False, 10.8)],
)
def test_copies_between_host_and_an_a100(to_device: bool, pinned: bool, measured: float) -> None:
    nbytes = 256 * 2**20
    links = Links(parse_spec("a100"))
    rate = nbytes / links.host_ns(0, nbytes, to_device=to_device, pinned=pinned)
    assert rate == pytest.approx(measured, rel=0.25)
    assert 4 / links.host_ns(0, 4, to_device=to_device, pinned=pinned) < rate / 1000  # latency is all


def test_formats_are_faster_by_the_cards_ratio() -> None:
    for card, fmt in (("a100", "tf32"), ("a100", "fp16"), ("a100", "bf16"), ("v100", "fp16"), ("h100", "bf16")):
        peaks = gpu(card).peak_flops.given()
        assert tflops(card, fmt, 8192) / tflops(card, "fp32", 8192) == pytest.approx(
            peaks[fmt] / peaks["fp32"], rel=0.15
        )
    assert tflops("v100", "tf32", 4096) == tflops("v100", "fp32", 4096)  # there is no TF32 on a V100


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
