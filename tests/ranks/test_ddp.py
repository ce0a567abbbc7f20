"""DistributedDataParallel between ranks."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.ranks.conftest import on_ranks

pytestmark = pytest.mark.usefixtures("gpus")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4))


def batches(size: int = 12) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(size, 8, generator=generator), torch.randn(size, 4, generator=generator)) for _ in "1234"]


def on_one_device(device: str = "cuda:0") -> list[torch.Tensor]:
    net = model().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x.to(device)), y.to(device)).backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in net.parameters()]


@pytest.mark.parametrize(
    "options", [{}, {"static_graph": True}, {"find_unused_parameters": True}, {"bucket_cap_mb": 1e-3}]
)
def test_training_equals_one_device_and_all_ranks_agree(options: dict[str, object]) -> None:
    def program() -> list[torch.Tensor]:
        rank, world = dist.get_rank(), dist.get_world_size()
        if rank:
            torch.manual_seed(100 + rank)
        net = model().cuda()
        ddp = DistributedDataParallel(net, device_ids=[rank], **options)  # type: ignore[arg-type]
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=0.01)
        for x, y in batches():
            optimizer.zero_grad()
            mine = slice(rank, None, world)
            nn.functional.mse_loss(ddp(x[mine].cuda()), y[mine].cuda()).backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in net.parameters()]

    results = on_ranks(4, program)
    expected = on_one_device()
    for found in results:
        for one, first, alone in zip(found, results[0], expected, strict=True):
            assert torch.equal(one, first)
            torch.testing.assert_close(one, alone, rtol=0, atol=1e-5)
