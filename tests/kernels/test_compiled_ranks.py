"""Compiled models on several ranks: DDP's buckets overlap with the backward pass, FSDP2's layers are compiled."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.compile import triton_version

if triton_version.missing() is not None:
    pytest.skip(triton_version.missing() or "", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("compiling")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(512, 512)

    def forward(self, x):
        return nn.functional.gelu(self.linear(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def ddp(net, compiled):
    wrapped = nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1)  # a layer
    return torch.compile(wrapped) if compiled else wrapped


def fsdp2(net, compiled):
    fully_shard = dist.fsdp.fully_shard
    for block in net.blocks:
        if compiled:
            block.compile()
        fully_shard(block)
    return fully_shard(net)


def step(wrap, compiled):
    """What a rank does: its gradients, and what the first rank's GPU did in a steady step."""
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    net = Net().cuda()
    model = wrap(net, compiled)
    x = torch.full((32, 512), 0.1 * (rank + 1), device="cuda")

    def train():
        net.zero_grad()
        model(x).square().sum().backward()
        torch.cuda.synchronize()

    train()
    with lab.record() as trace:
        train()
    gradients = [p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad for p in net.parameters()]
    dist.destroy_process_group()
    mine = [[one for one in events if one.device == rank] for events in (trace.kernels, trace.collectives)]
    return [one.cpu() for one in gradients], *mine


@pytest.mark.parametrize("wrap", [ddp, fsdp2])
def test_gradients_are_eagers_and_communication_overlaps(wrap):
    lab.disable()
    lab.enable("a100:2")
    eager, *_ = lab.run_ranks(lambda: step(wrap, False)[0], 2)
    compiled = lab.run_ranks(lambda: step(wrap, True), 2)
    for gradients, kernels, collectives in compiled:
        torch.testing.assert_close(gradients, eager)
        fused = [kernel for kernel in kernels if kernel.name.startswith("triton_")]
        assert len(fused) >= 2 * 4 - 1
        assert len(collectives) >= 4  # DDP: one for each bucket, so Dynamo's graph is split where a bucket ends
        last = max(kernel.end for kernel in kernels if "gelu_backward" in kernel.name)
        assert min(one.start for one in collectives) < last
