"""Whole programs on real cards, beside the same programs simulated: the comparisons of docs/fidelity.md.

    python -m tests.fidelity.side_by_side

prints each comparison, and writes its figure as a page, NAME.html, into the current folder. The recordings of the cards
are public (tests/recording_views/real/NOTICE.md).
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

import fakegpu_lab as lab
from tests.fidelity.fact import enabled
from tests.fidelity.programs.data_parallel import ranks
from tests.fidelity.programs.steps import card, images, network

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.comparison import Comparison
    from fakegpu_lab.recording import Recording

REAL = Path(__file__).parents[1] / "recording_views" / "real"


def _alexnet() -> nn.Module:
    def convolution(of: int, to: int, size: int, stride: int = 1, padding: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(of, to, size, stride, padding), nn.ReLU(inplace=True)]

    def linear(of: int) -> list[nn.Module]:
        return [nn.Dropout(), nn.Linear(of, 4096), nn.ReLU(inplace=True)]

    pool = nn.MaxPool2d(3, 2)
    return nn.Sequential(
        *convolution(3, 64, 11, 4, 2), pool, *convolution(64, 192, 5, 1, 2), pool, *convolution(192, 384, 3),
        *convolution(384, 256, 3), *convolution(256, 256, 3), pool, nn.AdaptiveAvgPool2d(6), nn.Flatten(),
        *linear(9216), *linear(4096), nn.Linear(4096, 1000),
    )  # fmt: skip


def alexnet() -> tuple[Recording, Recording]:
    """AlexNet's second pass over 128 images, without gradients, on an A100."""
    real = lab.open(REAL / "alexnet.json.gz").part(43.3213, 43.349)
    with enabled("a100", compute="meta"), torch.no_grad():
        with torch.device("cuda"):
            model, pixels = _alexnet(), torch.empty(128, 3, 224, 224)
        model(pixels)
        torch.cuda.synchronize()
        with lab.record() as ours:
            model(pixels)
            torch.cuda.synchronize()
    return real, ours


def resnet50() -> tuple[Recording, Recording]:
    """A training step of PyTorch's profiler tutorial, with its batch copied from pageable memory, on a V100."""
    real = lab.open(REAL / "resnet50_v100.json.gz")
    with card("v100"):
        model, _ = network("resnet50", {"fp32"})
        sgd = torch.optim.SGD(model.parameters(), 0.001, momentum=0.9, foreach=False)
        batch, classes = torch.empty(32, 3, 224, 224), torch.zeros(32, dtype=torch.long)

        def step() -> None:
            pixels, labels = batch.to("cuda"), classes.to("cuda")
            loss = F.cross_entropy(model(pixels), labels)
            sgd.zero_grad(set_to_none=False)
            loss.backward()
            sgd.step()

        ours = _steady(step)
    return real, ours


def data_parallel() -> tuple[Recording, Recording]:
    """A training step of ResNet-50 under DistributedDataParallel, on one V100."""
    real = lab.open(REAL / "resnet50_ddp_v100.json.gz")
    with ranks("v100", 1):
        model, layout = network("resnet50", {"fp32"})
        model = nn.parallel.DistributedDataParallel(model)
        pixels, labels = images(32, layout), torch.zeros(32, dtype=torch.long, device="cuda")
        sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)

        def step() -> None:
            sgd.zero_grad()
            F.cross_entropy(model(pixels), labels).backward()
            sgd.step()

        ours = _steady(step)
    return real, ours


def _steady(step: Callable[[], None]) -> Recording:
    """A recording of the fourth step."""
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with lab.record() as recorded:
        step()
    return recorded


PROGRAMS = {"data-parallel": data_parallel, "resnet50": resnet50, "alexnet": alexnet}
"""By name: what makes both recordings, the card's first."""


_OWN_LINE = re.compile(r"\([\w/]*side_by_side\.py:\d+: (.+?)\)(?=\.$)")
"""A line of this file, of which the page has the code."""


def compared(name: str) -> Comparison:
    """A program's comparison."""
    return lab.compare(*PROGRAMS[name](), ("the card", "the simulation"))


def markdown(found: Comparison) -> str:
    """What docs/fidelity.md says of a comparison: its sentences, and where the time went."""
    said = "\n".join(
        textwrap.fill(f"- {one[0].upper()}{one[1:]}", 120, subsequent_indent="  ", break_long_words=False)
        for one in (_OWN_LINE.sub(r"(`\1`)", each) for each in (found.verdict, *found.reasons))
    )
    headers, *rows = (found.time().headers, *found.time().rows)
    lines = [headers, ["---", *["---:"] * (len(headers) - 1)], *rows]
    return said + "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    for name in PROGRAMS:
        shown = compared(name)
        print(f"{name}\n\n{markdown(shown)}\n\n{shown.kernels(30)}\n")
        shown.figure("light").write_html(f"{name}.html")
