"""How long kernels take, as a model should behave. tests/fidelity has what cards were measured to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.lookup import gpu
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.network.links import Links
from fakegpu_lab.hardware.time.efficiency import WINOGRAD, convolutions, products
from fakegpu_lab.hardware.time.roofline import (
    ATTENTION_EFFICIENCY,
    ATTENTION_TILE,
    DIRECT_EFFICIENCY,
    FLOOR_NS,
    MIN_SPLIT,
    REMEMBERED,
    SOLVER_EFFICIENCY,
    Roofline,
    attention_width,
)

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


@pytest.mark.parametrize(
    ("card", "fmt", "reached"),
    [
        # The card's power over the energy of an operation: 72 W over 1.35 pJ, twice that for TF32, half for 8 bits, ….
        ("l4", "fp16", 53.3), ("l4", "tf32", 26.7), ("l4", "fp8", 106.7), ("l4", "int8", 106.7),
        ("t4", "fp16", 25.9), ("a10", "fp16", 53.6), ("rtx-a6000", "bf16", 107.1), ("h100-pcie", "bf16", 466.7),
        # Or a share of their peak, if that is less.
        ("v100", "fp16", 92.5), ("a100", "bf16", 230.9), ("h100", "bf16", 732.2), ("b200", "bf16", 1665.0),
        ("b200", "fp4", 6660.0), ("rtx3090ti", "fp16", 84.0),
        # Without tensor cores for the format, and where lanes are shared with integer work.
        ("p100", "fp16", 16.8), ("p100", "fp32", 8.4), ("a100", "fp32", 17.6), ("h100", "fp32", 49.6),
        ("t4", "bf16", 4.4), ("rtx3070", "fp32", 15.1), ("rtx3070", "fp64", 0.2865),
    ],
)  # fmt: skip
def test_what_large_products_reach(card: str, fmt: str, reached: float) -> None:
    assert products(gpu(card), fmt) * gpu(card).peak(fmt) / 1e12 == pytest.approx(reached, rel=0.01)


def test_economical_formats_reach_more_on_the_same_power() -> None:
    short = gpu("b200").model_copy(update={"power_limit_w": 100.0})
    rates = {fmt: products(short, fmt) * short.peak(fmt) / 1e12 for fmt in ("tf32", "fp16", "fp8", "int8", "fp4")}
    assert rates == pytest.approx({"tf32": 83.3, "fp16": 166.7, "fp8": 333.3, "int8": 333.3, "fp4": 666.7}, rel=0.01)
    for card, energy in (("v100", 2.7), ("a100", 1.2), ("h100", 0.75)):
        frugal = gpu(card).model_copy(update={"power_limit_w": 10.0})
        assert products(frugal, "fp16") * frugal.peak("fp16") == pytest.approx(10 / (energy * 1e-12))


@pytest.mark.parametrize(
    ("card", "fmt", "reached"),
    [
        # Half of what all multiprocessors multiply and add in a clock: 1,024 halves on an A100, 2,048 on Hopper, 4,096
        # on Blackwell's data-center cards, else 512.
        ("a100", "fp16", 0.5 * 2 * 1024 * 108 * 1.41e-3), ("v100", "fp16", 0.5 * 2 * 512 * 80 * 1.53e-3),
        ("h100", "bf16", 0.5 * 2 * 2048 * 132 * 1.98e-3), ("b200", "bf16", 0.5 * 2 * 4096 * 148 * 1.965e-3),
        ("b300", "bf16", 0.5 * 2 * 4096 * 148 * 1.98e-3), ("a100", "tf32", 0.5 * 1024 * 108 * 1.41e-3),
        # But never more than products; and the same without tensor cores.
        ("l4", "fp16", 53.3), ("v100", "fp32", 14.1), ("p100", "fp16", 16.8), ("a100", "fp64", 8.73),
    ],
)  # fmt: skip
def test_what_convolutions_reach(card: str, fmt: str, reached: float) -> None:
    assert convolutions(gpu(card), fmt) * gpu(card).peak(fmt) / 1e12 == pytest.approx(reached, rel=0.01)


def test_winograd_saves_less_than_its_multiplications() -> None:
    assert 1.4 < WINOGRAD < 2.25


def test_so_does_it_bound_those_without_tensor_cores() -> None:
    """TFLOP/s that the economical cards of an architecture reach in float32, and those that are not short of power."""
    for card, reached in (("t4", 4.3), ("rtx-a6000", 23.9), ("rtx-a4000", 11.9), ("l40s", 46.9), ("rtx3080ti", 24.4)):
        assert tflops(card, "fp32", 8192) == pytest.approx(reached, rel=0.07)
    for card, share in (("rtx2080ti", 0.93), ("v100", 0.90), ("a100", 0.90), ("h100", 0.74), ("rtx5090", 0.74)):
        assert products(gpu(card), "fp32") == pytest.approx(share, abs=0.04)


def test_a_result_of_few_columns_has_tiles_for_it() -> None:
    """Down to 8 columns, the width of ``mma``; and they are tall."""
    card = Roofline(gpu("a100"))
    rate = 312e12 / 1e9 / 108 * 0.5
    rows = 256 * 108
    tall = FLOOR_NS + 1_000 + 2 * 256 * 8 * 36 / (rate * 0.14)
    assert card.gemm("fp16", rows, 8, 36, efficiency=0.5) == pytest.approx(tall, rel=1e-3)
    assert card.gemm("fp16", rows, 16, 36, efficiency=0.5) == pytest.approx(
        FLOOR_NS + 1_000 + 2 * 256 * 16 * 36 / (rate * 0.28), rel=1e-3
    )
    assert card.gemm("fp16", rows, 32, 36, efficiency=0.5) == pytest.approx(
        FLOOR_NS + 1_000 + 2 * 256 * 32 * 36 / (rate * 0.53), rel=1e-3
    )


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


@pytest.mark.parametrize(
    ("rows", "columns", "efficiency"),
    [(256, 128, 1.0), (128, 128, 0.95), (128, 64, 0.80), (64, 64, 0.60), (64, 32, 0.40)],
)
def test_a_product_of_one_tile_for_each_multiprocessor(rows: int, columns: int, efficiency: float) -> None:
    """A microsecond for its ends, and its FLOPs at the tile's efficiency; of all tiles this one is the quickest."""
    card, sms = Roofline(gpu("a100")), 108
    rate = 312e12 / 1e9 / sms * 0.5  # FLOPs a nanosecond
    for waves in (1, 2):
        found = card.gemm("fp16", rows * sms * waves, columns, 255, efficiency=0.5)
        expected = FLOOR_NS + waves * (1_000 + 2 * rows * columns * 255 / (rate * efficiency))
        assert found == pytest.approx(expected, rel=1e-3) if waves == 1 else found <= expected
    batched = card.gemm("fp16", rows, columns, 255, sms, efficiency=0.5)
    assert batched == card.gemm("fp16", rows * sms, columns, 255, efficiency=0.5)


def test_a_product_of_one_tile_is_split_along_its_sum() -> None:
    """Into parts of at least 256, each of which writes sums of four bytes that are read once more."""
    card = Roofline(gpu("a100"))
    rate = 312e12 / 1e9 / 108 * 0.5
    split = 1_000 + 2 * 64 * 32 * 256 / (rate * 0.40) + 8 * 64 * 32 * 16 * card.ns_per_byte
    assert card.gemm("fp16", 64, 32, 4096, efficiency=0.5) == pytest.approx(FLOOR_NS + split, rel=1e-3)
    halves = 1_000 + 2 * 64 * 32 * 256 / (rate * 0.40) + 8 * 64 * 32 * 2 * card.ns_per_byte
    assert card.gemm("fp16", 64, 32, 512, efficiency=0.5) == pytest.approx(FLOOR_NS + halves, abs=1)
    assert card.gemm("fp16", 64, 32, 511, efficiency=0.5) == pytest.approx(
        FLOOR_NS + 1_000 + 2 * 64 * 32 * 511 / (rate * 0.40), rel=1e-3
    )


def test_what_is_estimated_stays_where_its_sources_put_it() -> None:
    assert 1_500 <= FLOOR_NS <= 2_500  # what profilers show for an add of a few numbers
    assert 0.1 <= DIRECT_EFFICIENCY <= 0.2  # a thread for each output, and loads for each multiply-add
    assert 0.03 <= SOLVER_EFFICIENCY <= 0.08  # panels are sequential
    assert MIN_SPLIT == ATTENTION_TILE[0] * 2 == ATTENTION_TILE[1] * 4 == 256
    card = Roofline(gpu("a100"))
    for number in range(REMEMBERED):
        card.remember(number, number)
    assert len(card.known) == REMEMBERED == 4096
    assert (card.remember("one more", 1), len(card.known)) == (1, 1)


def test_how_much_of_the_card_a_kernel_fills() -> None:
    card = Roofline(gpu("a100"))
    assert card.gemm_share(128, 64) == card.gemm_share(1, 1) == pytest.approx(1 / 108)
    assert card.gemm_share(129, 65, 2) == pytest.approx(8 / 108)
    assert card.gemm_share(128 * 108, 64) == card.gemm_share(128, 64, 200) == 1.0
    full = 108 * 2048 * 4  # threads of all multiprocessors, four elements each
    assert card.share(full) == card.share(2 * full) == 1.0
    assert card.share(full // 4) == pytest.approx(0.25)
    assert card.share(1) == pytest.approx(1 / 108)


def test_of_what_half_fits_into_l2_half_the_bytes_are_slow() -> None:
    card = Roofline(gpu("a100"))
    l2 = int(0.7 * 40 * 2**20)
    slow, quick = 1.02e9 / 2039e9 + 1e9 / (108 * 70e9), 1e9 / (108 * 45e9)
    assert card.streaming(l2) == pytest.approx(FLOOR_NS + l2 * quick, rel=1e-3)
    assert card.streaming(l2 * 5 // 4) == pytest.approx(FLOOR_NS + l2 * 5 / 4 * (0.25 * slow + 0.75 * quick), rel=1e-3)
    assert card.streaming(2 * l2) == pytest.approx(FLOOR_NS + 2 * l2 * slow, rel=1e-3)
    assert card.gather(2 * l2) == pytest.approx(FLOOR_NS + 4 * l2 * slow, rel=1e-3)


def test_fused_attention_reaches_what_its_authors_measured() -> None:
    (forward, backward), since = ATTENTION_EFFICIENCY["flash"]
    assert (forward, backward) == pytest.approx((200 / 312, 175 / 312), rel=0.05)  # arXiv:2307.08691, an A100
    assert 0.35 <= since[0] <= 0.40  # arXiv:2407.08608, on an H100
    assert 0.85 * since[0] < since[1] < since[0]
    assert ATTENTION_EFFICIENCY["cudnn"][1][0] == pytest.approx(600 / 989, rel=0.05)
    for generation, flash in enumerate(ATTENTION_EFFICIENCY["flash"]):
        efficient = ATTENTION_EFFICIENCY["efficient"][generation]
        assert [one / two for one, two in zip(efficient, flash, strict=True)] == pytest.approx([0.5, 0.45], rel=0.1)


def test_arithmetic_or_memory_whichever_takes_longer() -> None:
    card = Roofline(gpu("a100"))
    reached = products(gpu("a100"), "fp32")
    assert card.arithmetic("fp32", 1e12) == pytest.approx(FLOOR_NS + 1e12 / (19.5e12 * reached) * 1e9, rel=1e-3)
    assert card.arithmetic("fp32", 1e12, efficiency=0.1) == pytest.approx(FLOOR_NS + 1e12 / 1.95e12 * 1e9, rel=1e-3)
    assert card.arithmetic("fp32", 1e6, 2**30) == card.streaming(2**30)


def test_rows_that_are_not_aligned_are_slow() -> None:
    def slower(card: str, alignment: int, fmt: str = "fp16") -> float:
        known = Roofline(gpu(card))
        return known.gemm(fmt, 4096, 4095, 4096, alignment=alignment) / known.gemm(fmt, 4096, 4096, 4096)

    assert 1.3 < slower("a100", 8) < 1.5 < slower("a100", 4) < 2.1
    assert slower("rtx4090", 2) == pytest.approx(156 / 112, rel=0.15)  # pytorch#181718
    assert 4 < slower("a100", 2) < 5 < 8 < slower("h100", 2) < 10  # the faster the tensor cores, the more is lost
    assert slower("p100", 2) < 1.05  # it has none


def test_fused_attention_computes_the_next_of_its_widths() -> None:
    assert [attention_width(width) for width in (32, 33, 64, 128, 129, 256)] == [32, 64, 64, 128, 192, 256]


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
