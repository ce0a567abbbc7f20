"""Random numbers that people printed on real cards, to all four digits.

The page names the card, or the numbers are so few that every card gives the same: more than one wave of threads, and
they depend on the number of multiprocessors.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from tests.fidelity.fact import Fact, enabled

if TYPE_CHECKING:
    from collections.abc import Callable

ISSUE = "https://github.com/pytorch/pytorch/issues/"
REDRAFTER = (
    "https://github.com/NVIDIA/TensorRT-LLM, tests/unittest/trt/model/redrafter/test_unpack_gen_data.py (36 numbers)"
)
HEADS = "https://github.com/open-mmlab/mmdetection3d, tests/test_models/test_heads/test_heads.py"
SAMPLE = "https://github.com/flashinfer-ai/flashinfer, flashinfer/logits_processor/processors.py (class Sample)"
WEIGHTS = "https://github.com/mrdbourke/pytorch-deep-learning/issues/759 (torch 2.1.0+cu121)"


def seeded(seed: int) -> torch.Generator:
    return torch.Generator("cuda").manual_seed(seed)


def ends(tensor: torch.Tensor) -> torch.Tensor:
    """What printing shows of a large matrix: the first and last three of the first and last three."""
    picked = torch.cat((tensor[:3], tensor[-3:]))
    return torch.cat((picked[:, :3], picked[:, -3:]), 1)


def uniform() -> torch.Tensor:
    torch.manual_seed(0)
    zero, one = torch.tensor(0.0, device="cuda"), torch.tensor(1.0, device="cuda")
    return torch.distributions.Uniform(zero, one).rsample((5,))  # type: ignore[no-untyped-call]


def thirty_six() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.rand((9, 4), device="cuda")


def one_after_the_other() -> torch.Tensor:
    """What rand(5, 7), rand(5), randint and rand(5, 3) gave (test_part_aggregation_ROI_head): the offset moves."""
    torch.manual_seed(0)
    drawn = [torch.rand(5, 7, device="cuda")[4], torch.rand(5, device="cuda")]
    torch.randint(0, 3, (5,), device="cuda")
    return torch.cat([*drawn, torch.rand(5, 3, device="cuda").flatten()])


def normal(seed: int, *shape: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return torch.randn(*shape, device="cuda")


def weights() -> torch.Tensor:
    """The bias is drawn second."""
    with torch.device("cuda"):
        torch.manual_seed(42)
        model = torch.nn.Sequential(torch.nn.Linear(1, 1))
    return torch.stack([model[0].weight.detach().flatten(), model[0].bias.detach()])


def nine_million() -> torch.Tensor:
    drawn = torch.randn(1, 49 * 12 * 112 * 144, device="cuda", generator=seeded(1))[0]
    return torch.cat((drawn[:3], drawn[-3:]))


def mean_and_deviation() -> torch.Tensor:
    """100,000 numbers of 73,728 threads."""
    torch.manual_seed(14)
    return ends(torch.empty(1000, 100, device="cuda").normal_(5, 5**0.5))


def latents() -> torch.Tensor:
    return ends(torch.randn([1, 64, 2048], generator=seeded(42), device="cuda")[0])


def noise() -> torch.Tensor:
    return torch.empty(1, 3, 128, 128, device="cuda").normal_(generator=seeded(43))[..., 0, 0]


def printed(draw: Callable[[], torch.Tensor], card: str) -> str:
    with enabled(card):
        return " ".join(f"{value:.4f}" for value in draw().flatten().tolist())


def where_cards_part(card: str) -> str:
    """Whether an L4 draws the same as that card, one element before and after the wave of the smaller one is full."""
    drawn = []
    for name in (card, "l4"):
        with enabled(name):
            drawn.append([torch.rand(n, device="cuda", generator=seeded(0)).tolist() for n in (40_960, 40_961)])
    return ", ".join("equal" if ours == theirs else "different" for ours, theirs in zip(*drawn, strict=True))


def fact(what: str, cards: str, source: str, draw: Callable[[], torch.Tensor], real: str) -> list[Fact]:
    """The same on each of those cards."""
    return [Fact(what, card, " ".join(real.split()), source, partial(printed, draw)) for card in cards.split()]


FACTS = [
    *fact("manual_seed(0); Uniform(0, 1)", "a100 t4", ISSUE + "47347", uniform, "0.3990 0.5167 0.0249 0.9401 0.9459"),
    *fact("manual_seed(0); rand(9, 4)", "a100 t4", REDRAFTER, thirty_six,
          """0.3990 0.5167 0.0249 0.9401  0.9459 0.7967 0.4150 0.8203  0.2290 0.9096 0.1183 0.0752
          0.4092 0.9601 0.2093 0.1940  0.8909 0.4387 0.3570 0.5454  0.8299 0.2099 0.7684 0.4290
          0.2117 0.6606 0.1654 0.4250  0.9927 0.6964 0.2472 0.7028  0.7494 0.9303 0.0494 0.0750"""),
    *fact("manual_seed(0); rand, rand, randint, rand", "a100 t4", HEADS, one_after_the_other,
          """0.9927 0.6964 0.2472 0.7028 0.7494 0.9303 0.0494  0.9722 0.7910 0.4690 0.3300 0.3345
          0.7874 0.1344 0.2190  0.8193 0.6969 0.7304  0.2328 0.9028 0.3900  0.6177 0.5012 0.2330
          0.8985 0.4894 0.7152"""),
    *fact("manual_seed(10); randn(3)", "a100 t4", ISSUE + "79496", partial(normal, 10, 3), "-0.1029 1.6810 -0.2708"),
    *fact("manual_seed(42); randn(2, 5)", "a100 t4", SAMPLE, partial(normal, 42, 2, 5),
          "0.1940 2.1614 -0.1721 0.8491 -1.9244 0.6530 -0.6494 -0.8175 0.5280 -1.2753"),
    *fact("manual_seed(42); nn.Linear(1, 1)", "a100 t4", WEIGHTS, weights, "0.2259 0.9754"),
    *fact("9,483,264 normal numbers, the ends", "h100", ISSUE + "143086 (torch 2.5.1)", nine_million,
          "-0.2963 2.6764 -0.1408 -0.6970 -0.7780 0.3267"),
    *fact("9,483,264 normal numbers, the ends", "a100", ISSUE + "143086 (torch 2.5.1)", nine_million,
          "-0.2963 2.6764 -0.1408 0.1549 -0.6797 -0.1656"),
    *fact("normal_(5, 5**0.5) of 1000×100", "rtx-a4000", ISSUE + "97097 (torch 2.0.0)", mean_and_deviation,
          """2.8731 5.2727 2.9889 1.6853 9.6331 6.6319  3.9968 3.8097 5.7328 4.4029 3.9804 7.4698
          6.5552 4.0857 4.2315 2.7704 3.5479 3.3063  8.6297 2.3137 6.2596 7.9358 4.4697 2.7475
          7.0551 7.8583 3.9990 4.1139 8.9315 4.2042  2.7337 2.2106 7.7815 8.2207 6.5395 4.2604"""),
    *fact("randn(1, 64, 2048)", "rtx3060",
          ISSUE + "158398 (the page names no card; of those known here, only one with 28 multiprocessors gives this)",
          latents,
          """0.1940 2.1614 -0.1721 1.4540 -2.7733 -0.8932  -0.4574 0.8063 0.1580 0.1124 0.2769 -1.2535
          1.1346 -0.6329 -0.9147 -1.0001 -1.1552 -0.6955  -0.4861 0.3358 1.0578 -0.7282 0.5087 0.1318
          0.7881 0.8339 -1.1424 -0.6297 -1.1112 -0.4091  -1.2356 -0.4083 -0.4695 -0.4841 1.2850 -0.0282"""),
    *fact("normal_() of 3×128×128", "rtx-a6000", ISSUE + "62467", noise, "1.9983 0.8704 2.1127"),
    Fact("rand(40,960) and rand(40,961), against an L4's", "t4", "equal, different", ISSUE + "194676 (torch 2.11)",
         where_cards_part),
]  # fmt: skip
