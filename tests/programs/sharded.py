"""FSDP2, tensor parallel and a distributed checkpoint on the ranks of torchrun: all train as one device does."""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).cuda()


def train(net: nn.Module, x: torch.Tensor, y: torch.Tensor, whole: bool) -> list[float]:
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        if not whole:
            dist.all_reduce(total, op=dist.ReduceOp.AVG)
        losses.append(total.item())
    return losses


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank))
    world_size = dist.get_world_size()
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(16, 64, generator=generator) for _ in range(2))
    mine = slice(rank * 16 // world_size, (rank + 1) * 16 // world_size)
    expected = train(model(), x.cuda(), y.cuda(), whole=True)

    mesh = init_device_mesh("cuda", (world_size,))
    sharded = model()
    for layer in sharded:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    bytes_here = sum(p.to_local().nbytes for p in sharded.parameters())
    torch.testing.assert_close(
        train(sharded, x[mine].cuda(), y[mine].cuda(), whole=False), expected, atol=1e-5, rtol=1e-5
    )

    tensor = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(train(tensor, x.cuda(), y.cuda(), whole=True), expected, atol=1e-5, rtol=1e-5)

    folders = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folders)
    folder = Path(str(folders[0]))
    dcp.save({"model": sharded.state_dict()}, checkpoint_id=folder)
    again = model()
    for layer in again:
        fully_shard(layer, mesh=mesh)
    fully_shard(again, mesh=mesh)
    state = {"model": again.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    again.load_state_dict(state["model"])
    for old, new in zip(sharded.parameters(), again.parameters(), strict=True):
        assert torch.equal(old.full_tensor(), new.full_tensor())
    cpu = torch.full((3,), rank + 1.0)
    dist.all_reduce(cpu)
    if rank == 0:
        print("all equal", bytes_here, cpu.tolist(), len(list(folder.glob("*.distcp"))), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
