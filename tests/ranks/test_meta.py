"""Ranks under ``compute="meta"``: memory and time of a step, without numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _meta() -> Iterator[None]:
    lab.enable("dgx-a100", compute="meta")
    yield
    lab.disable()


def network() -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(16384, 16384, bias=False, device="cuda") for _ in range(4)])  # 1 GiB each


def step(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    net(torch.empty(16, 16384, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_fsdp2_of_four_gibibytes_on_eight_ranks() -> None:
    from torch.distributed.fsdp import fully_shard

    def program() -> tuple[float, float]:
        net = network()
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters())
        step(net, optimizer)
        torch.cuda.reset_peak_memory_stats()
        step(net, optimizer)
        return torch.cuda.memory_allocated() / GIB, torch.cuda.max_memory_allocated() / GIB

    for held, peak in on_ranks(8, program):
        assert held == pytest.approx(1.5, abs=0.05)  # parameters and two moments, an eighth of 12 GiB
        assert 3 < peak < 6


def test_ddp_overlaps_its_buckets_with_backward() -> None:
    def program() -> None:
        net = nn.parallel.DistributedDataParallel(network())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            step(net, optimizer)

    with lab.record() as trace:
        on_ranks(4, program)
    reduced = [one for one in trace.collectives if "all_reduce" in one.name and one.rank == 0]
    backward = [kernel for kernel in trace.kernels if kernel.backward and kernel.device == 0]
    assert any(one.start_ns < kernel.end_ns and kernel.start_ns < one.end_ns for one in reduced for kernel in backward)


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True}, {"static_graph": True}], ids=str)
def test_ddp_issues_the_collectives_of_a_run_with_values(options: dict[str, bool]) -> None:
    def program() -> None:
        layers = [nn.Linear(512, 512, device="cuda") for _ in range(3)]
        net = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1, **options)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            net(torch.ones(16, 512, device="cuda")).sum().backward()
            optimizer.step()

    def what_happened() -> list[list[tuple[object, ...]]]:
        with lab.record() as trace:
            on_ranks(2, program)
        kernels = [(one.name, one.device, one.nbytes, one.start_ns, one.end_ns) for one in trace.kernels]
        together = [(one.name, one.rank, one.nbytes, one.start_ns, one.end_ns) for one in trace.collectives]
        waits = [(one.device, one.start_ns, one.end_ns) for one in trace.waits]
        return [kernels, together, waits]

    without = what_happened()
    lab.enable("dgx-a100")
    assert without == what_happened()


def test_ddp_compares_the_models_of_the_ranks() -> None:
    def program() -> None:
        nn.parallel.DistributedDataParallel(nn.Linear(4 + dist.get_rank(), 4, device="cuda"))

    with pytest.raises(RuntimeError, match="appears not to match sizes of the same param in process 0"):
        on_ranks(2, program)


def test_objects_go_from_rank_to_rank_without_values_on_devices() -> None:
    def program() -> list[object]:
        rank = dist.get_rank()
        gathered: list[object] = [None] * 3
        dist.all_gather_object(gathered, {"rank": rank})
        root: list[object] = [None] * 3
        dist.gather_object(rank, root if rank == 1 else None, dst=1)
        told = [rank, "x"]
        dist.broadcast_object_list(told, src=2)
        mine: list[object] = [None]
        dist.scatter_object_list(mine, ["a", "b", "c"] if rank == 0 else None, src=0)
        return [gathered, root, told, mine]

    assert on_ranks(3, program) == [
        [[{"rank": 0}, {"rank": 1}, {"rank": 2}], [0, 1, 2] if rank == 1 else [None] * 3, [2, "x"], ["abc"[rank]]]
        for rank in range(3)
    ]


def test_an_object_that_not_all_ranks_send_is_told() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.all_gather_object([None, None], 1)

    with pytest.raises(dist.DistBackendError, match="rank 0 waits for all_gather_object, of ranks 0, 1"):
        on_ranks(2, program)
