"""Many updates of a panel while a net trains: ``python panel.py UPDATES``."""

from __future__ import annotations

import statistics
import sys
import time

import torch
from steps import ALLOWED, resident
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.notebook.telemetry.source import Reader, Source


def main(count: int) -> None:
    lab.enable("a100:2")
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    source, sizes, times = Source(), [], []
    source.busy = True
    source.open()
    reader = Reader(source)
    before = 0
    for number in range(count):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.randn(8, 16).cuda()).square().mean().backward()
            optimizer.step()
        began = time.process_time()
        source.poll()
        sizes.append(len(reader.message().model_dump_json()))
        times.append(time.process_time() - began)
        if number == count // 10:
            before = resident()
    source.close()
    grown, tenth = resident() - before, max(1, count // 10)
    first, last = (1e3 * statistics.median(part) for part in (times[:tenth], times[-tenth:]))
    print(
        f"{count} updates, {first:.2f} ms each at first and {last:.2f} at last, {max(sizes) / 1024:.0f} KiB at most, "
        f"{grown / 2**20:.1f} MiB more after the first tenth"
    )
    sys.exit(grown > ALLOWED or max(sizes) > 1 << 20)


if __name__ == "__main__":
    main(int(sys.argv[1]))
