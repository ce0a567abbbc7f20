"""What random numbers cost: drawn by plain CPU torch and on ``cuda:0``, side by side.

    python benchmarks/random_numbers.py [--quick]

The CPU draws from its Mersenne Twister; the device computes a card's Philox numbers. Printed are the shortest of many
small batches, so that a busy machine disturbs both little. (The file is not named after the module `random`, which
every script beside it imports through torch.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.functional import dropout

import fakegpu_lab as lab

Draw = Callable[[], Any]


def in_place(name: str, *args: Any) -> Callable[[str, int], Draw]:
    """``tensor.name(*args)`` on a tensor of that size."""

    def make(device: str, numel: int) -> Draw:
        method = getattr(torch.empty(numel, device=device), name)
        return lambda: method(*args)

    return make


def dropped(device: str, numel: int) -> Draw:
    """Dropout of a tenth of a vector."""
    ones = torch.ones(numel, device=device)
    return lambda: dropout(ones, 0.1)


def linear(device: str, width: int) -> Draw:
    """A square layer with its first weights."""
    return lambda: nn.Linear(width, width, device=device)


def gpt(device: str, width: int) -> Draw:
    """The layers of eight GPT blocks and their embedding: 32 million weights at width 512."""

    def build() -> list[nn.Module]:
        shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)] * 8
        layers: list[nn.Module] = [nn.Linear(*shape, device=device) for shape in shapes]
        return [*layers, nn.Embedding(13_000, width, device=device)]

    return build


SIZES = (4, 1000, 200_000, 1_000_000, 10_000_000)
WORK: list[tuple[str, Callable[[str, int], Draw], tuple[int, ...]]] = [
    ("uniform_", in_place("uniform_"), SIZES),
    ("normal_(0, 0.02)", in_place("normal_", 0, 0.02), SIZES),
    ("bernoulli_(0.3)", in_place("bernoulli_", 0.3), SIZES),
    ("exponential_", in_place("exponential_"), SIZES),
    ("randn", lambda device, numel: lambda: torch.randn(numel, device=device), SIZES),
    ("rand", lambda device, numel: lambda: torch.rand(numel, device=device), SIZES),
    ("dropout", dropped, SIZES),
    ("randperm", lambda device, numel: lambda: torch.randperm(numel, device=device), (4, 60_000)),
    ("Linear(n, n)", linear, (4, 784)),
    ("GPT of width n", gpt, (512,)),
]


def shortest(draws: list[Draw], seconds: float) -> list[float]:
    """Seconds a call of each, the least of batches that alternate."""
    best = [float("inf")] * len(draws)
    for draw in draws:
        draw()
    started = time.perf_counter()
    while time.perf_counter() - started < seconds * len(draws):
        for i, draw in enumerate(draws):
            calls = 1 if best[i] > 1e-3 else 10
            start = time.perf_counter()
            for _ in range(calls):
                draw()
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
    return best


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, nothing above a million numbers")
    options = parser.parse_args()
    lab.enable("a100")
    print(f"{'':18}{'numbers':>10}{'cpu':>13}{'cuda:0':>13}{'ratio':>8}{'more':>13}")
    for name, make, sizes in WORK:
        for size in sizes:
            if options.quick and size > 1_000_000:
                continue
            cpu, cuda = shortest([make("cpu", size), make("cuda:0", size)], 0.05 if options.quick else 0.5)
            print(
                f"{name:18}{size:10}{cpu * 1e6:10.1f} µs{cuda * 1e6:10.1f} µs{cuda / cpu:8.2f}"
                f"{(cuda - cpu) * 1e6:10.1f} µs"
            )
    lab.disable()


if __name__ == "__main__":
    main()
