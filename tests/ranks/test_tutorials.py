"""Programs as torch's tutorials write them: "Getting Started with DDP", "FSDP2", "torchrun" with a checkpoint."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

pytestmark = pytest.mark.usefixtures("gpus")


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(self.relu(self.net1(x)))


class ToyMpModel(nn.Module):
    def __init__(self, dev0: int, dev1: int) -> None:
        super().__init__()
        self.dev0, self.dev1 = dev0, dev1
        self.net1 = nn.Linear(10, 10).to(dev0)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5).to(dev1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.relu(self.net1(x.to(self.dev0)))
        return self.net2(x.to(self.dev1))


def test_ddp_with_a_checkpoint_that_rank_0_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "model.checkpoint")

    def demo_checkpoint() -> torch.Tensor:
        acc = torch.accelerator.current_accelerator()
        assert acc is not None
        rank = dist.get_rank()
        device_id = rank % torch.accelerator.device_count()
        model = ToyModel().to(rank)
        ddp_model = DDP(model, device_ids=[device_id])
        if rank == 0:
            torch.save(ddp_model.state_dict(), path)
        dist.barrier()
        map_location = {"cuda:0": f"cuda:{rank}"}
        ddp_model.load_state_dict(torch.load(path, map_location=map_location, weights_only=True))
        loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.001)
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        loss_fn(outputs, torch.randn(20, 5).to(rank)).backward()
        optimizer.step()
        dist.barrier()
        if rank == 0:
            Path(path).unlink()
        return model.net1.weight.detach().cpu()

    first, *others = on_ranks(4, demo_checkpoint)
    assert all(torch.equal(first, other) for other in others)


def test_ddp_around_a_model_on_two_devices() -> None:
    def demo_model_parallel() -> torch.Tensor:
        rank = dist.get_rank()
        ddp_model = DDP(ToyMpModel(rank * 2, rank * 2 + 1))
        loss_fn, optimizer = nn.MSELoss(), optim.SGD(ddp_model.parameters(), lr=0.001)
        optimizer.zero_grad()
        outputs = ddp_model(torch.randn(20, 10))
        loss_fn(outputs, torch.randn(20, 5).to(rank * 2 + 1)).backward()
        optimizer.step()
        return ddp_model.module.net2.weight.detach().cpu()

    first, second = on_ranks(2, demo_model_parallel)
    assert torch.equal(first, second)


class Samples(Dataset[Any]):
    def __init__(self) -> None:
        self.data = [(torch.full((10,), float(i)), torch.rand(5)) for i in range(16)]

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        return self.data[index]


def test_the_trainer_of_the_series_on_ddp(tmp_path: Path) -> None:
    """multigpu_torchrun.py: snapshots, DistributedSampler, workers and pinned memory."""

    def main() -> list[float]:
        local_rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(local_rank)
        dist.init_process_group(backend="nccl")
        dataset = Samples()
        data = DataLoader(
            dataset, batch_size=4, pin_memory=True, shuffle=False, sampler=DistributedSampler(dataset), num_workers=1
        )
        model = ToyModel().to(local_rank)
        optimizer = optim.SGD(model.parameters(), lr=1e-3)
        ddp = DDP(model, device_ids=[local_rank])
        seen = []
        for epoch in range(2):
            data.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
            for source, targets in data:
                source, targets = source.to(local_rank), targets.to(local_rank)
                optimizer.zero_grad()
                nn.functional.mse_loss(ddp(source), targets).backward()
                optimizer.step()
                seen += source[:, 0].tolist()
            if local_rank == 0:
                torch.save({"MODEL_STATE": ddp.module.state_dict(), "EPOCHS_RUN": epoch}, tmp_path / "snapshot.pt")
        dist.destroy_process_group()
        return seen

    first, second = lab.run_ranks(main, 2)
    assert sorted(first[:8] + second[:8]) == [float(i) for i in range(16)]
    assert torch.load(tmp_path / "snapshot.pt", weights_only=True)["EPOCHS_RUN"] == 1


def test_fsdp2_from_the_meta_device() -> None:
    """The tutorial's way: build on meta, shard, then materialise and initialise."""
    from torch.distributed.fsdp import FSDPModule, fully_shard
    from torch.distributed.tensor import DTensor

    def main() -> float:
        with torch.device("meta"):
            model = nn.Sequential(ToyModel(), nn.Linear(5, 10), ToyModel())
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        assert isinstance(model, FSDPModule)
        assert all(isinstance(p, DTensor) and p.device.type == "meta" for p in model.parameters())
        model.to_empty(device="cuda")
        torch.manual_seed(0)
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        model[0].set_modules_to_forward_prefetch([model[1]])  # type: ignore[operator]
        optimizer = optim.Adam(model.parameters(), lr=1e-2)
        x = torch.randn((4, 10), device="cuda")
        for _ in range(2):
            loss = model(x).sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.item())

    losses = on_ranks(2, main)
    assert all(loss == loss for loss in losses)


def test_a_traceback_ends_at_the_users_line() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(1, device="cuda"))

    with pytest.raises(dist.DistBackendError) as caught:
        on_ranks(2, program)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert last.line == 'dist.all_reduce(torch.ones(1, device="cuda"))'
