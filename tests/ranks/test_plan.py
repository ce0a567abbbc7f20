"""`lab.plan`: a function of this process as one rank of a job of thousands; the process stays as it was."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import fakegpu_lab as lab
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def machine() -> Iterator[None]:
    lab.enable("dgx-h100", compute="meta")
    yield
    lab.disable()


def ddp(steps: int = 2) -> tuple[int, int, str]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    model = nn.parallel.DistributedDataParallel(nn.Linear(4096, 4096, bias=False, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(512, 4096, device="cuda")).sum().backward()
        optimizer.step()
    return dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_RANK"]


def test_a_function_runs_as_one_rank_of_many(machine: None) -> None:
    planned = lab.plan(ddp, 512, rank=9)
    assert planned.result == (9, 512, "1")
    assert planned.plan.nodes == 64
    (averaged,) = (one for one in planned.operations if one.name == "all_reduce")
    assert (averaged.ranks, averaged.nbytes) == (512, 2 * 4 * 4096 * 4096)
    assert 3 * 2**26 < planned.memory < 5 * 2**26  # parameters, gradients, DDP's bucket, and workspace
    assert 0 < planned.exposed < planned.seconds
    assert "rank 9 of 512, on 64 nodes of 8 NVIDIA H100" in str(planned)


def test_a_plan_does_not_depend_on_what_ran_before(machine: None) -> None:
    first, second, alone = lab.plan(ddp, 64), lab.plan(ddp, 64), lab.plan(ddp, 64, 1)
    assert (second.step, second.memory) == (first.step, first.memory)
    assert alone.step.ns < 1.2 * first.plan.steps[0].ns  # and not from the beginning of the machine's time


def test_afterwards_the_process_is_no_rank(machine: None) -> None:
    environment, device, hook = dict(os.environ), torch.cuda.current_device(), sys.excepthook
    with pytest.raises(ZeroDivisionError):
        lab.plan(lambda: (ddp(1), 1 / 0), 16, rank=3)
    lab.plan(ddp, 16, rank=3)
    assert (dict(os.environ), torch.cuda.current_device(), dist.is_initialized()) == (environment, device, False)
    assert sys.excepthook is hook
    torch._C._cuda_clearCublasWorkspaces()
    assert torch.cuda.memory_allocated(3) == 0
    assert lab.run_ranks(ddp, 2)[1] == (1, 2, "1")


def test_what_cannot_be_planned_is_said(machine: None) -> None:
    with pytest.raises(FakeGpuError, match="There is no rank 8 in a world of 8"):
        lab.plan(ddp, 8, rank=8)
    with pytest.raises(FakeGpuError, match="A rank cannot plan other ranks"):
        lab.plan(lambda: lab.plan(ddp, 8), 8)
    with pytest.raises(FakeGpuError, match=r"call optimizer\.step"):
        lab.plan(lambda: None, 8).seconds  # noqa: B018
    lab.disable()
    with pytest.raises(FakeGpuError, match="No simulated GPU is enabled"):
        lab.plan(ddp, 8)


def tensor_parallel() -> list[int]:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    layers = nn.Sequential(nn.Linear(256, 1024, bias=False), nn.GELU(), nn.Linear(1024, 256, bias=False)).cuda()
    mesh = init_device_mesh("cuda", (8,))
    parallel = {"0": ColwiseParallel(input_layouts=Shard(1)), "2": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(layers, mesh, parallel)
    held = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            layers(torch.ones(4, 64, 256, device="cuda")).sum().backward()
            held.append(torch.cuda.memory_allocated())
    finally:
        gc.enable()
    return held


def test_a_step_of_tensor_parallel_leaves_nothing_to_the_garbage_collector(machine: None) -> None:
    """As on CUDA, where each product of a DTensor has a rule; the peak would depend on when Python collects."""
    assert len(set(lab.plan(tensor_parallel, 8).result)) == 1


def test_a_plan_that_does_not_fit_leaves_nothing_behind(machine: None) -> None:
    def too_large() -> None:
        ddp(1)
        kept = [torch.empty(2**34, device="cuda") for _ in range(5)]
        assert not kept

    with pytest.raises(torch.OutOfMemoryError) as error:
        lab.plan(too_large, 16)
    assert torch.cuda.memory_allocated() < 2**26  # though the error is still here
    assert "out of memory" in str(error.value)
