"""Random numbers that people printed on real cards, digit for digit.

Each case names the page where the digits stand, and the card where the page tells it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def card(request: pytest.FixtureRequest) -> Iterator[None]:
    lab.enable(request.param)
    try:
        yield
    finally:
        lab.disable()


def digits(tensor: torch.Tensor) -> list[str]:
    return [f"{value:.4f}" for value in tensor.flatten().tolist()]


def assert_printed(tensor: torch.Tensor, expected: str) -> None:
    """The tensor prints as those numbers, to all four digits."""
    assert digits(tensor) == [f"{float(number):.4f}" for number in expected.split()]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator("cuda").manual_seed(seed)


SMALL = ["a100", "t4"]  # below one wave of threads every card gives the same


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_uniform(card: None) -> None:
    """https://github.com/pytorch/pytorch/issues/47347"""
    torch.manual_seed(0)
    zero, one = torch.tensor(0.0, device="cuda"), torch.tensor(1.0, device="cuda")
    drawn = torch.distributions.Uniform(zero, one).rsample((5,))  # type: ignore[no-untyped-call]
    assert_printed(drawn, "0.3990 0.5167 0.0249 0.9401 0.9459")


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_rand_of_sixty_numbers(card: None) -> None:
    """https://github.com/NVIDIA/TensorRT-LLM/blob/main/tests/unittest/trt/model/redrafter/test_unpack_gen_data.py"""
    torch.manual_seed(0)
    assert_printed(
        torch.rand((9, 4), device="cuda"),
        """0.3990 0.5167 0.0249 0.9401  0.9459 0.7967 0.4150 0.8203  0.2290 0.9096 0.1183 0.0752
        0.4092 0.9601 0.2093 0.1940  0.8909 0.4387 0.3570 0.5454  0.8299 0.2099 0.7684 0.4290
        0.2117 0.6606 0.1654 0.4250  0.9927 0.6964 0.2472 0.7028  0.7494 0.9303 0.0494 0.0750""",
    )


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_the_offset_after_rand_and_randint(card: None) -> None:
    """https://github.com/open-mmlab/mmdetection3d, tests/test_models/test_heads/test_heads.py

    Its author pasted what rand(5, 7), rand(5), randint (labels) and rand(5, 3) gave, one after the other
    (test_part_aggregation_ROI_head).
    """
    torch.manual_seed(0)
    assert_printed(torch.rand(5, 7, device="cuda")[4], "0.9927 0.6964 0.2472 0.7028 0.7494 0.9303 0.0494")
    assert_printed(torch.rand(5, device="cuda"), "0.9722 0.7910 0.4690 0.3300 0.3345")
    torch.randint(0, 3, (5,), device="cuda")
    assert_printed(
        torch.rand(5, 3, device="cuda"),
        """0.7874 0.1344 0.2190  0.8193 0.6969 0.7304  0.2328 0.9028 0.3900  0.6177 0.5012 0.2330
        0.8985 0.4894 0.7152""",
    )


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_randn(card: None) -> None:
    """https://github.com/pytorch/pytorch/issues/79496"""
    torch.manual_seed(10)
    assert_printed(torch.randn(3, device="cuda"), "-0.1029 1.6810 -0.2708")


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_randn_twice(card: None) -> None:
    """https://github.com/flashinfer-ai/flashinfer/blob/main/flashinfer/logits_processor/processors.py (class Sample)"""
    torch.manual_seed(42)
    assert_printed(
        torch.randn(2, 5, device="cuda"),
        "0.1940 2.1614 -0.1721 0.8491 -1.9244 0.6530 -0.6494 -0.8175 0.5280 -1.2753",
    )


@pytest.mark.parametrize("card", SMALL, indirect=True)
def test_initial_weights(card: None) -> None:
    """https://github.com/mrdbourke/pytorch-deep-learning/issues/759 (torch 2.1.0+cu121): the bias is drawn second."""
    with torch.device("cuda"):
        torch.manual_seed(42)
        model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    assert_printed(model[0].weight, "0.2259")
    assert_printed(model[0].bias, "0.9754")


def issue_143086() -> torch.Tensor:
    return torch.randn(1, 49 * 12 * 112 * 144, device="cuda", generator=seeded(1))[0]


@pytest.mark.parametrize(
    ("card", "tail"),
    [("h100", "-0.6970 -0.7780 0.3267"), ("a100", "0.1549 -0.6797 -0.1656")],
    indirect=["card"],
)
def test_nine_million_numbers_depend_on_the_card(card: None, tail: str) -> None:
    """https://github.com/pytorch/pytorch/issues/143086 (H100 and A100, torch 2.5.1)"""
    drawn = issue_143086()
    assert_printed(drawn[:3], "-0.2963 2.6764 -0.1408")
    assert_printed(drawn[-3:], tail)


def ends(tensor: torch.Tensor) -> torch.Tensor:
    """What printing shows of a large matrix: the first and last three of the first and last three."""
    picked = torch.cat((tensor[:3], tensor[-3:]))
    return torch.cat((picked[:, :3], picked[:, -3:]), 1)


@pytest.mark.parametrize("card", ["rtx-a4000"], indirect=True)
def test_mean_and_deviation_on_an_rtx_a4000(card: None) -> None:
    """https://github.com/pytorch/pytorch/issues/97097 (RTX A4000, torch 2.0.0); 100 000 numbers, 73 728 threads"""
    torch.manual_seed(14)
    drawn = torch.empty(1000, 100, device="cuda").normal_(5, 5**0.5)
    assert_printed(
        ends(drawn),
        """2.8731 5.2727 2.9889 1.6853 9.6331 6.6319  3.9968 3.8097 5.7328 4.4029 3.9804 7.4698
        6.5552 4.0857 4.2315 2.7704 3.5479 3.3063  8.6297 2.3137 6.2596 7.9358 4.4697 2.7475
        7.0551 7.8583 3.9990 4.1139 8.9315 4.2042  2.7337 2.2106 7.7815 8.2207 6.5395 4.2604""",
    )


@pytest.mark.parametrize("card", ["rtx3060"], indirect=True)
def test_latents_of_a_diffusion_model(card: None) -> None:
    """https://github.com/pytorch/pytorch/issues/158398

    The page does not name the card; of those known here, only one with 28 multiprocessors (RTX 3060) gives these ends.
    """
    drawn = torch.randn([1, 64, 2048], generator=seeded(42), device="cuda")
    assert_printed(
        ends(drawn[0]),
        """0.1940 2.1614 -0.1721 1.4540 -2.7733 -0.8932  -0.4574 0.8063 0.1580 0.1124 0.2769 -1.2535
        1.1346 -0.6329 -0.9147 -1.0001 -1.1552 -0.6955  -0.4861 0.3358 1.0578 -0.7282 0.5087 0.1318
        0.7881 0.8339 -1.1424 -0.6297 -1.1112 -0.4091  -1.2356 -0.4083 -0.4695 -0.4841 1.2850 -0.0282""",
    )


@pytest.mark.parametrize("card", ["rtx-a6000"], indirect=True)
def test_noise_on_an_rtx_a6000(card: None) -> None:
    """https://github.com/pytorch/pytorch/issues/62467 (RTX A6000)"""
    noise = torch.empty(1, 3, 128, 128, device="cuda").normal_(generator=seeded(43))
    assert_printed(noise[..., 0, 0], "1.9983 0.8704 2.1127")


def test_where_a_t4_and_an_l4_part() -> None:
    """https://github.com/pytorch/pytorch/issues/194676: equal at 40 960 elements, different at 40 961 (torch 2.11)."""
    drawn = {}
    for name in ("t4", "l4"):
        lab.enable(name)
        drawn[name] = [torch.rand(n, device="cuda", generator=seeded(0)).tolist() for n in (40_960, 40_961)]
        lab.disable()
    assert drawn["t4"][0] == drawn["l4"][0]
    assert drawn["t4"][1] != drawn["l4"][1]
