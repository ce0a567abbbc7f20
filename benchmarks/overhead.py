"""What the simulation costs: the same work on plain CPU torch and on ``cuda:0``, side by side.

    python benchmarks/overhead.py [--json FILE] [--rounds N] [--quick]

The two alternate in one process, in small batches, so that a machine that slows down slows both; the medians of the
batches and their ratio are printed. ``enable`` is timed in fresh processes, after ``import torch``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fakegpu_lab as lab

Step = Callable[[], Any]


def small_add(device: str) -> Step:
    """``a + b`` of 4×4 tensors, no grad."""
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
    return lambda: a + b


def small_matmul(device: str) -> Step:
    """``a @ b`` of 4×4 tensors, no grad."""
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
    return lambda: a @ b


def mlp_step(device: str) -> Step:
    """A training step of 10-32-1, batch 32, SGD."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(32, 10).to(device), torch.randn(32, 1).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    return step


def mixed_step(device: str) -> Step:
    """The MLP's training step, forward in bfloat16 by autocast."""
    region = torch.autocast(device.partition(":")[0], dtype=torch.bfloat16)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = torch.randn(32, 10, device=device), torch.randn(32, 1, device=device)

    def step() -> None:
        optimizer.zero_grad()
        with region:
            loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def cnn_step(device: str) -> Step:
    """A training step of conv 3→16, pool, linear on 14×14, batch 16, Adam."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 7 * 7, 10)
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(16, 3, 14, 14).to(device), torch.randint(10, (16,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


class Block(nn.Module):
    """A GPT block: d 256, 4 heads."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the MLP, each with its residual."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def gpt_step(device: str) -> Step:
    """A training step of a 4-layer GPT: d 256, 4 heads, batch 4×128, vocabulary 256, AdamW."""
    torch.manual_seed(0)
    embed, head = nn.Embedding(256, 256), nn.Linear(256, 256)
    model = nn.Sequential(embed, *(Block() for _ in range(4)), nn.LayerNorm(256), head).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens, targets = torch.randint(256, (4, 128)).to(device), torch.randint(256, (4 * 128,)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets).backward()
        optimizer.step()

    return step


#        name            make          no_grad  calls a batch   limit that the project aims at
WORK = [
    ("4x4 add", small_add, True, 2000, "≤ 9 µs more"),
    ("4x4 matmul", small_matmul, True, 2000, ""),
    ("MLP step", mlp_step, False, 40, "≤ 3 ×"),
    ("AMP step", mixed_step, False, 40, ""),
    ("CNN step", cnn_step, False, 15, "≤ 2 ×"),
    ("GPT step", gpt_step, False, 1, "≤ 1.10 ×"),
]


def compare(make: Callable[[str], Step], calls: int, rounds: int, no_grad: bool) -> dict[str, float]:
    """Medians in seconds a call on both, over `rounds` batches that alternate."""
    steps = {"cpu": make("cpu"), "cuda": make("cuda:0")}
    times: dict[str, list[float]] = {"cpu": [], "cuda": []}
    with torch.set_grad_enabled(not no_grad):
        for step in steps.values():
            for _ in range(max(calls // 2, 2)):
                step()
        for _ in range(rounds):
            for name, step in steps.items():
                start = time.perf_counter()
                for _ in range(calls):
                    step()
                times[name].append((time.perf_counter() - start) / calls)
    ratios = [b / a for a, b in zip(times["cpu"], times["cuda"], strict=True)]
    return {
        "cpu_seconds": statistics.median(times["cpu"]),
        "cuda_seconds": statistics.median(times["cuda"]),
        "ratio": statistics.median(ratios),
        "difference_seconds": statistics.median(b - a for a, b in zip(times["cpu"], times["cuda"], strict=True)),
    }


_ENABLE = """
import time, torch
start = time.perf_counter()
import fakegpu_lab
fakegpu_lab.enable("a100:2")
print(time.perf_counter() - start)
"""


def enable_seconds(runs: int) -> float:
    """Median seconds of importing the package and enabling, in fresh processes that have imported torch.

    With the package's bytecode, which an installed package has: compiling it would take as long as everything else.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment["PYTHONPYCACHEPREFIX"] = folder

        def once() -> float:
            command = [sys.executable, "-c", _ENABLE]
            return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)

        once()
        return statistics.median(once() for _ in range(runs))


def main() -> None:
    """Measure, print a table, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.add_argument("--rounds", type=int, default=21, help="batches of each, alternating (default 21)")
    parser.add_argument("--quick", action="store_true", help="5 rounds, for a look")
    options = parser.parse_args()
    rounds = 5 if options.quick else options.rounds
    lab.enable("a100:2")
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "results": {},
    }
    print(f"{'':12}{'cpu':>12}{'cuda:0':>12}{'ratio':>8}{'more':>12}   limit")
    for name, make, no_grad, calls, limit in WORK:
        figures = report["results"][name] = compare(make, calls, rounds, no_grad)
        print(
            f"{name:12}{figures['cpu_seconds'] * 1e6:9.1f} µs{figures['cuda_seconds'] * 1e6:9.1f} µs"
            f"{figures['ratio']:8.2f}{figures['difference_seconds'] * 1e6:9.1f} µs   {limit}"
        )
    lab.disable()
    report["results"]["enable"] = {"seconds": (seconds := enable_seconds(3 if options.quick else 7))}
    print(f"{'enable':12}{'':12}{seconds * 1e3:9.0f} ms{'':20}   ≤ 500 ms")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
