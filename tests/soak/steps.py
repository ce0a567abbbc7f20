"""A long training, which must not take more and more memory of the host: ``python steps.py count``."""

from __future__ import annotations

import gc
import sys

import psutil
import torch
from torch import nn

import fakegpu_lab as lab

ALLOWED = 8 << 20
"""Bytes by which the process may grow after the first tenth."""


def main(count: int) -> None:
    lab.enable("a100")
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    data, labels = torch.randn(8, 16), torch.zeros(8, dtype=torch.long)
    before = allocated = 0
    for step in range(count):
        loss = nn.functional.cross_entropy(net(data.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 500 == 0:
            with lab.record() as trace:
                loss.item()
            assert trace.transfers
            lab.snapshot(categories=True)
        if step == count // 10:
            before, allocated = resident(), torch.cuda.memory_allocated()
    grown = resident() - before
    print(f"{count} steps, {grown / 2**20:.1f} MiB more after the first tenth, of {before / 2**20:.0f}")
    sys.exit(grown > ALLOWED or torch.cuda.memory_allocated() != allocated)


def resident() -> int:
    """The process's memory in RAM."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main(int(sys.argv[1]))
