"""Device memory: what people's programs printed on real cards, stage by stage, and what they print here.

All figures are the caching allocator's, and hold to the last byte. Where a page names no card, the figure is the same
on every card of its kind, and one of them stands here.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tests.fidelity.fact import Fact, enabled

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 2**20
EXPERIMENTS = (
    "https://akhilez.medium.com/simple-gpu-memory-allocation-experiments-every-ml-engineer-should-do-ad5f3e132c5e"
)
LEAK = "https://github.com/pytorch/pytorch/issues/95668 (A10G)"
SUMMARY = "https://github.com/pytorch/pytorch/pull/91854"
LAYERS = "https://discuss.pytorch.org/t/208243"
SETTINGS = "https://github.com/pytorch/pytorch/pull/193400 (a 16 GiB card, torch 2.12; its fix is not merged)"
IMAGES = "https://github.com/pytorch/pytorch/issues/37250"


def empty(mib: float) -> torch.Tensor:
    return torch.empty(int(mib * MIB), dtype=torch.uint8, device="cuda")


@cache
def first_tensor(card: str) -> list[int]:
    """4 KiB: reserved and allocated while it is there, when it is gone, and when the cache is emptied."""
    found = []
    with enabled(card):
        x = torch.randn(1024, device="cuda")
        found += [torch.cuda.memory_reserved(), torch.cuda.memory_allocated()]
        del x
        found += [torch.cuda.memory_reserved(), torch.cuda.memory_allocated()]
        torch.cuda.empty_cache()
        return [*found, torch.cuda.memory_reserved()]


def first_product(card: str) -> int:
    """What a layer that is gone leaves behind: cuBLAS's workspace."""
    with enabled(card):
        nn.Linear(1, 1, device="cuda")(torch.randn(1, 1, device="cuda"))
        return torch.cuda.memory_allocated()


def summary_line(card: str) -> str:
    with enabled(card):
        _kept = torch.zeros(1024 * 1024, dtype=torch.uint8, device="cuda")
        lines: list[str] = torch.cuda.memory_summary().splitlines()
        return re.sub(" +", " ", next(line for line in lines if "Active memory" in line))


@cache
def forty_layers(card: str) -> list[float]:
    """MiB before forward, after it, at its peak, and before a second one. The batch is what 16 MiB of input make."""
    with enabled(card, compute="meta"):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4096, 4096, device="cuda"), nn.ReLU()) for _ in range(40)))
        x = torch.randn(1024, 4096, device="cuda")
        found = [torch.cuda.memory_allocated()]
        torch.cuda.reset_peak_memory_stats()
        y = model(x)
        found += [torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]
        del y
        return [round(nbytes / MIB, 2) for nbytes in (*found, torch.cuda.memory_allocated())]


@cache
def growing(card: str) -> list[int]:
    """MiB reserved in each twentieth cycle of 91 and 45.5 MiB that go and 2 MiB that stay, beside 64 MiB."""
    before = os.environ.get("PYTORCH_ALLOC_CONF")
    os.environ["PYTORCH_ALLOC_CONF"] = "max_split_size_mb:128,expandable_segments:True"
    try:
        with enabled(card, compute="meta"):
            kept, found = [empty(64)], []
            for cycle in range(101):
                passing = empty(91), empty(45.5)
                kept.append(empty(2))
                del passing
                if cycle % 20 == 0:
                    found.append(torch.cuda.memory_reserved() // MIB)
            return found
    finally:
        os.environ.pop("PYTORCH_ALLOC_CONF")
        if before is not None:
            os.environ["PYTORCH_ALLOC_CONF"] = before


def images(card: str) -> str:
    """The amounts in the message of a batch that is too large, with one that fits still there."""
    with enabled(card, memory="5.5GiB", compute="meta"):
        _kept = torch.zeros([1024, 3, 224, 224], device="cuda")
        try:
            torch.zeros([10240, 3, 224, 224], device="cuda")
        except torch.OutOfMemoryError as error:
            asked, total, allocated = re.findall(
                r"allocate (.+?)\. .*capacity of (.+? .iB).* memory (.+? .iB) is all", str(error)
            )[0]
            return f"asked {asked}, has {total}, allocated {allocated}"
    return "nothing"


def nth(of: Callable[[str], list[Any]], place: int) -> Callable[[str], Any]:
    return lambda card: of(card)[place]


FACTS = [
    *(
        Fact(f"a tensor of 1024 floats: {what}", "t4", real, EXPERIMENTS, nth(first_tensor, place), "bytes")
        for place, (what, real) in enumerate(
            [
                ("reserved", 2_097_152),
                ("allocated", 4096),
                ("reserved when it is gone", 2_097_152),
                ("allocated when it is gone", 0),
                ("reserved after empty_cache()", 0),
            ]
        )
    ),
    Fact(
        "what stays allocated of a first nn.Linear(1, 1) that is gone", "a10g", 8_519_680, LEAK, first_product, "bytes"
    ),
    Fact(
        "memory_summary() of 1 MiB, a line",
        "a100",
        "| Active memory | 1024 KiB | 1024 KiB | 1024 KiB | 0 B |",
        SUMMARY,
        summary_line,
    ),
    *(
        Fact(f"40 × nn.Linear(4096, 4096) and ReLU: {what}", "a100", real, LAYERS, nth(forty_layers, place), "MiB")
        for place, (what, real) in enumerate(
            [
                ("before forward", 2576.62),
                ("after forward", 3224.75),
                ("at the peak of forward", 3240.75),
                ("before a second forward", 2584.75),
            ]
        )
    ),
    *(
        Fact(
            f"max_split_size_mb with expandable segments, reserved in cycle {20 * place}",
            "t4",
            real,
            SETTINGS,
            nth(growing, place),
            "MiB",
        )
        for place, real in enumerate([220, 2980, 5760, 8520, 11300, 14060])
    ),
    Fact(
        "10,240 images after 1,024, on 5.5 GiB",
        "rtx3060",
        "asked 5.74 GiB, has 5.50 GiB, allocated 588.00 MiB",
        IMAGES,
        images,
    ),
]
