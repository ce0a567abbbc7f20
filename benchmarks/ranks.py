"""What eight ranks of one process cost beside one: the same training of a small GPT with DDP, turn by turn.

    python benchmarks/ranks.py [--ranks N] [--rounds N] [--json FILE]

Each rank trains on a batch of its own, so eight of them compute eight times as much as one. Processor time is compared,
of all the process's threads: what other programs do on this computer stays out. Of each, the quickest round counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from overhead import Block
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab

STEPS = 3


class GPT(nn.Module):
    """4 layers, d 256, 4 heads, vocabulary 256."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 256), nn.Linear(256, 256)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)), nn.LayerNorm(256))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits of the next token."""
        logits: torch.Tensor = self.head(self.blocks(self.embed(tokens)))
        return logits


def train() -> float:
    """DDP with AdamW, batch 4×128 a rank; the last loss."""
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = DistributedDataParallel(GPT().cuda(), device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    tokens, targets = torch.randint(256, (4, 128)).cuda(), torch.randint(256, (4 * 128,)).cuda()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()
    return loss.item()


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8, help="ranks to compare with one (default 8)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    lab.enable(f"a100:{options.ranks}")
    seconds: dict[str, list[tuple[float, float]]] = {"one": [], "all": []}
    for turn in range(options.rounds + 1):  # the first one warms up
        for name, ranks in (("one", 1), ("all", options.ranks)):
            began, busy = time.perf_counter(), time.process_time()
            lab.run_ranks(train, ranks)
            if turn:
                seconds[name].append((time.process_time() - busy, time.perf_counter() - began))
    lab.disable()
    figures: dict[str, float] = {}
    for place, what in enumerate(("processor", "wall")):
        one, many = (min(times[place] for times in seconds[name]) for name in ("one", "all"))
        figures |= {f"{what}_one": one, f"{what}_all": many, f"{what}_ratio": many / one}
        ratio = f"{many / one:.2f} ×   (≤ 8.5 × for 8)"
        print(f"{what:9}: 1 rank {one:6.3f} s, {options.ranks} ranks {many:6.3f} s: {ratio}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
