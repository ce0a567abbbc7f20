"""A rank of a world that is implied: its values, its memory, its time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.ranks.planning import figures, implied_ranks
from fakegpu_lab.ranks.scheduling import environment
from tests.ranks.test_torchrun import PROGRAMS
from tests.test_cli import lab as fakegpu_lab
from tests.test_cli import refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def inside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[figures.World]:
    """Rank 9 of 1,024, on nodes of eight H100."""
    for name in environment.variables(0, 2):
        monkeypatch.setenv(name, "")
    lab.enable("dgx-h100", compute=getattr(request, "param", "real"))
    world = figures.checked(1024, 9, 8)
    implied_ranks.enter(world)
    torch.cuda.set_device(1)
    dist.init_process_group("nccl")
    yield world
    dist.destroy_process_group()
    implied_ranks.leave()
    figures.current = None
    lab.disable()


def test_the_others_are_taken_to_have_the_same_values(inside: figures.World) -> None:
    assert (dist.get_rank(), dist.get_world_size()) == (9, 1024)
    x = torch.tensor([1.0, 2.0], device="cuda")
    for op, expected in (("SUM", [1024.0, 2048.0]), ("AVG", [1.0, 2.0]), ("MAX", [1.0, 2.0])):
        y = x.clone()
        dist.all_reduce(y, op=getattr(dist.ReduceOp, op))
        assert y.tolist() == expected
    gathered = torch.empty(2048, device="cuda")
    dist.all_gather_single(gathered, x) if hasattr(dist, "all_gather_single") else dist.all_gather_into_tensor(
        gathered, x
    )
    assert gathered.view(1024, 2).unique(dim=0).tolist() == [[1.0, 2.0]]
    mine = torch.empty(1, device="cuda")
    group = dist.distributed_c10d._get_default_group()
    group._reduce_scatter_base(mine, torch.arange(1024.0, device="cuda")).wait()
    assert mine.tolist() == [9.0 * 1024]
    objects = [None] * 1024
    dist.all_gather_object(objects, {"a": 1})
    assert objects == [{"a": 1}] * 1024
    dist.send(x, 10)
    dist.recv(y, 8)
    assert y.tolist() == [1.0, 2.0]
    dist.barrier(device_ids=[1])


def test_an_operation_takes_as_long_as_the_fabric_of_all_nodes_says(inside: figures.World) -> None:
    far = implied_ranks.fabric(inside)
    tensor = torch.ones(1 << 20, device="cuda")
    nodes = dist.new_group(list(range(8, 16)))
    for group, slots in ((None, range(1024)), (nodes, range(8, 16))):
        torch.cuda.synchronize()
        with lab.record() as trace:
            dist.all_reduce(tensor, group=group)
            torch.cuda.synchronize()
        assert trace.elapsed * 1e9 == pytest.approx(far.cost("all_reduce", slots, 4 << 20).ns, abs=20_000)
    assert figures.current is not None
    assert [(one.name, one.ranks, one.calls, one.nbytes) for one in figures.current.operations] == [
        ("all_reduce", 1024, 1, 4 << 20),
        ("all_reduce", 8, 1, 4 << 20),
    ]


@pytest.mark.parametrize("inside", ["meta"], indirect=True)
def test_fsdp2_holds_its_share_and_gathers_layer_by_layer(inside: figures.World) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8)))
    mesh = init_device_mesh("cuda", (1024,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cuda")
    layer_bytes = 4 * 4096 * 4096
    assert torch.cuda.memory_allocated() == 8 * layer_bytes // 1024
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    for _ in range(2):
        model(torch.ones(512, 4096, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    held = torch.cuda.memory_allocated() - 8 * 3 * layer_bytes // 1024
    assert 0 <= held < 64 << 20  # and cuBLAS's workspace
    assert 2 * layer_bytes < torch.cuda.max_memory_allocated() < 6 * layer_bytes
    assert figures.current is not None
    gathered, scattered = figures.current.operations
    assert (gathered.nbytes, scattered.nbytes) == (gathered.calls * layer_bytes, 16 * layer_bytes)
    first, second = figures.current.steps
    assert second.kernels_ns > 0
    assert second.collectives_ns > second.exposed_ns > 0
    assert second.ns == pytest.approx(first.ns, rel=0.5)


def test_plan_tells_of_a_rank_of_a_tensor_parallel_and_sharded_llama(tmp_path: Path) -> None:
    sizes = ["--layers=2", "--width=256", "--hidden=512", "--heads=8", "--groups=8", "--words=1000", "--length=128"]
    program = str(PROGRAMS / "llama_2d.py")
    ran = fakegpu_lab(
        *("plan", "-n", "64", "--report", "out.json", "--chrome", "time.json", program, *sizes),
        cwd=tmp_path,
        PYTHONWARNINGS="ignore",
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["plan"]["world_size"], told["plan"]["local_size"], len(told["plan"]["steps"])) == (64, 8, 2)
    groups = {(one["name"], one["ranks"]) for one in told["plan"]["operations"]}
    assert {("all_gather_into_tensor", 8), ("reduce_scatter_tensor", 8)} <= groups
    events = json.loads((tmp_path / "time.json").read_text())["traceEvents"]
    assert any("all_gather" in event["name"].lower() or "AllGather" in event["name"] for event in events)
    assert "rank 0 of 64, on 8 nodes of 8 NVIDIA H100 80GB HBM3" in ran.stderr
    assert "(the last of 2): kernels " in ran.stderr
    assert "Assumed: every other rank does the same as this one" in ran.stderr


def test_a_world_that_cannot_be_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no rank 8 in a world of 8" in refused(
        capsys, monkeypatch, "plan", "-n", "8", "--rank", "8", "x.py"
    )
    with pytest.raises(FakeGpuError, match="A world has from 1 to 131,072 ranks"):
        figures.checked(1 << 20, 0, 8)
