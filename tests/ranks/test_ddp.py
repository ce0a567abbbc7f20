"""DistributedDataParallel between ranks."""

from __future__ import annotations

import contextlib

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
def test_training_equals_one_device_and_all_ranks_agree(
    options: dict[str, object], capfd: pytest.CaptureFixture[str]
) -> None:
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
    assert capfd.readouterr().err == ""


def train(ddp: nn.Module, *, accumulate: int = 1) -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for number, (x, y) in enumerate(batches()):
        mine = slice(rank, None, world)
        last = number % accumulate == accumulate - 1
        with contextlib.nullcontext() if last else ddp.no_sync():  # type: ignore[operator]
            nn.functional.mse_loss(ddp(x[mine].cuda()), y[mine].cuda()).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()


def test_no_sync_reduces_once_for_several_batches() -> None:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def program() -> tuple[int, list[torch.Tensor]]:
        calls = []
        net = model().cuda()
        ddp = DistributedDataParallel(net)

        def counted(state, bucket):  # type: ignore[no-untyped-def] # torch reads annotations, if there are any
            calls.append(bucket.index())
            return allreduce_hook(dist.group.WORLD, bucket)

        ddp.register_comm_hook(None, counted)
        train(ddp, accumulate=2)
        return len(calls), [parameter.detach().cpu() for parameter in net.parameters()]

    net = model().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for number, (x, y) in enumerate(batches()):
        nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    for calls, found in on_ranks(2, program):
        assert calls == 2  # of four backwards
        for one, alone in zip(found, net.parameters(), strict=True):
            torch.testing.assert_close(one, alone.detach().cpu(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("hook", ["fp16", "built-in", "power", "then"])
def test_communication_hooks(hook: str) -> None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def program() -> list[torch.Tensor]:
        net = model().cuda()
        ddp = DistributedDataParallel(net)
        if hook == "fp16":
            ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
        elif hook == "built-in":
            ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        elif hook == "power":
            state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
            ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        else:

            def averaged(state, bucket):  # type: ignore[no-untyped-def] # torch reads annotations, if there are any
                work = dist.all_reduce(bucket.buffer(), async_op=True)
                return work.get_future().then(lambda done: done.value()[0] / dist.get_world_size())

            ddp.register_comm_hook(None, averaged)
        train(ddp)
        return [parameter.detach().cpu() for parameter in net.parameters()]

    exact = [parameter.clone() for parameter in on_ranks(2, _plain)[0]]
    first, second = on_ranks(2, program)
    for one, other, plain in zip(first, second, exact, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, plain, rtol=0, atol=0.05 if hook == "power" else 1e-3)


def _plain() -> list[torch.Tensor]:
    net = model().cuda()
    train(DistributedDataParallel(net))
    return [parameter.detach().cpu() for parameter in net.parameters()]


def test_join_lets_ranks_have_unequally_many_batches() -> None:
    from torch.distributed.algorithms.join import Join

    def program() -> list[torch.Tensor]:
        net = model().cuda()
        ddp = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with Join([ddp]):
            for x, y in batches()[: 2 + dist.get_rank()]:
                optimizer.zero_grad()
                nn.functional.mse_loss(ddp(x.cuda()), y.cuda()).backward()
                optimizer.step()
        return [parameter.detach().cpu() for parameter in net.parameters()]

    results = on_ranks(3, program)
    for found in results:
        assert all(torch.equal(one, other) for one, other in zip(found, results[0], strict=True))


def test_sync_batch_norm_normalises_over_all_ranks() -> None:
    def network() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv1d(2, 4, 1), nn.BatchNorm1d(4), nn.Conv1d(4, 2, 1)).cuda()

    def results(net: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        output = net(x.cuda())
        output.pow(3).mean().backward()
        return output.detach().cpu(), [*(p.grad.cpu() for p in net.parameters() if p.grad is not None), *net.buffers()]

    x = torch.randn(6, 2, 4, generator=torch.Generator().manual_seed(2))

    def program() -> tuple[torch.Tensor, list[torch.Tensor]]:
        net = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(network()))
        return results(net, x[dist.get_rank() :: 3])

    expected, others = results(network(), x)
    for rank, (found, more) in enumerate(on_ranks(3, program)):
        torch.testing.assert_close(found, expected[rank::3], rtol=0, atol=1e-5)
        for one, other in zip(more, others, strict=True):
            torch.testing.assert_close(one.cpu(), other.cpu(), rtol=0, atol=1e-5)


def test_buffers_are_those_of_rank_0_at_every_forward() -> None:
    def program() -> torch.Tensor:
        ddp = DistributedDataParallel(nn.BatchNorm1d(8).cuda())
        for _ in range(2):
            ddp(batches()[dist.get_rank()][0].cuda())
        return ddp.module.running_mean.cpu()

    first, second = on_ranks(2, program)
    assert not torch.equal(first, second)  # each has seen its own batch since

    def synchronised() -> torch.Tensor:
        ddp = DistributedDataParallel(nn.BatchNorm1d(8, momentum=1.0).cuda())
        ddp(batches()[dist.get_rank()][0].cuda())
        ddp(batches()[0][0].cuda())
        return ddp.module.running_mean.cpu()

    first, second = on_ranks(2, synchronised)
    assert torch.equal(first, second)


def test_distributed_sampler_gives_each_rank_its_share() -> None:
    from torch.utils.data import DistributedSampler

    def program() -> list[int]:
        sampler = DistributedSampler(range(10), shuffle=True)  # type: ignore[arg-type]
        sampler.set_epoch(1)
        return list(sampler)

    first, second = on_ranks(2, program)
    assert sorted(first + second) == list(range(10))
