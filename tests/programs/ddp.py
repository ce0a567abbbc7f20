"""An ordinary DDP training, as torchrun starts it: prints each step's loss, and whether all weights are equal."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 10, generator=generator)
    return TensorDataset(x, x.sin().sum(1, keepdim=True))


def main() -> None:
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    torch.manual_seed(rank)  # DDP gives all the weights of rank 0
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    dataset = data()
    sampler = DistributedSampler(dataset, shuffle=True, seed=7)
    loader = DataLoader(dataset, batch_size=16 // world_size, sampler=sampler)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG)
            if rank == 0:
                print(f"loss: {loss.item():.7f}", flush=True)
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    everyone = [torch.empty_like(flat) for _ in range(world_size)]
    dist.all_gather(everyone, flat)
    if rank == 0:
        print("equal:", all(torch.equal(other, flat) for other in everyone), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
