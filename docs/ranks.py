"""Makes the picture of a step of DDP that the README shows: ``python docs/ranks.py`` writes ddp-step.html here.

The picture is docs/images/ddp-step.png.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from timeline import GPT
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab


def train() -> lab.Trace:
    """One step of training on each rank; not the first one, after which DDP puts its buckets in order."""
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = DistributedDataParallel(GPT(width=1024, heads=16, depth=8).cuda())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    tokens = torch.randint(0, 1000, (16, 129), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        scores = model(tokens[:, :-1])
        functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        torch.cuda.synchronize()

    for _ in range(2):
        step()
    with lab.record() as trace:  # one rank's recording is of all devices; barriers keep the others within it
        dist.barrier(device_ids=[rank])
        step()
        dist.barrier(device_ids=[rank])
    return trace


def program() -> lab.Trace:
    """What torchrun would start on each rank."""
    dist.init_process_group("nccl")
    trace = train()
    dist.destroy_process_group()
    return trace


def main() -> None:
    """Write the page."""
    lab.enable("a100:4", compute="meta")
    trace = lab.run_ranks(program, 4)[0]
    trace.figure().write_html("ddp-step.html")
    print(trace.summary(top=8))
    lab.disable()


if __name__ == "__main__":
    main()
