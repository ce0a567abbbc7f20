"""Many ranks in one process: DDP's training and every collective, on ``python many_ranks.py RANKS``."""

from __future__ import annotations

import sys
import threading
import time

import torch
import torch.distributed as dist
from steps import resident
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab

OF_A_RANK = 32 << 20
"""Bytes that a rank with a small net may take."""


def program() -> float:
    dist.init_process_group("nccl")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(16, 4).cuda())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        net(torch.full((2, 16), float(rank), device="cuda")).sum().backward()
        optimizer.step()
    mine = torch.full((world,), float(rank), device="cuda")
    other = torch.empty_like(mine)
    dist.all_to_all_single(other, mine)
    assert other.tolist() == list(range(world))
    dist.broadcast(mine, world - 1)
    assert mine.tolist() == [float(world - 1)] * world
    part = dist.new_group(list(range(world // 2)))
    if rank < world // 2:
        dist.all_reduce(mine, group=part)
    dist.barrier()
    total = net.module.weight.detach().sum().item()
    dist.destroy_process_group()
    return total


def main(count: int) -> None:
    lab.enable(f"a100:{count}")
    before, threads, began = resident(), threading.active_count(), time.monotonic()
    totals = lab.run_ranks(program, count)
    took, more = time.monotonic() - began, resident() - before
    assert len(set(totals)) == 1, totals
    again = lab.run_ranks(program, count)
    assert again == totals
    grown = resident() - before - more
    left = threading.active_count() - threads
    print(
        f"{count} ranks, {took:.1f} s, {more / count / 2**20:.1f} MiB each; {left} threads left, {grown >> 20} MiB more"
    )
    sys.exit(more / count > OF_A_RANK or left > 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
