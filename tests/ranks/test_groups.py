"""Groups of some ranks, meshes, functional collectives, rendezvous."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.two_tensor import TwoTensor

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gpus")


def value(number: float) -> torch.Tensor:
    return torch.full((2,), float(number), device="cuda")


def test_new_groups_and_subgroups() -> None:
    def program() -> None:
        rank = dist.get_rank()
        even, odd = dist.new_group([0, 2]), dist.new_group([1, 3])
        mine = odd if rank % 2 else even
        assert dist.get_process_group_ranks(mine) == [rank % 2, rank % 2 + 2]
        assert dist.get_rank(mine) == rank // 2
        x = value(rank)
        dist.all_reduce(x, group=mine)
        assert x.tolist() == [2 * (rank % 2) + 2] * 2
        dist.broadcast(x, src=rank % 2 + 2, group=mine)
        other = even if rank % 2 else odd
        with pytest.warns(UserWarning, match="not belong to the given group"):
            dist.all_reduce(x, group=other)
        half, halves = dist.new_subgroups(2)
        assert len(halves) == 2
        x = value(rank)
        dist.all_reduce(x, group=half)
        assert x.tolist() == [rank // 2 * 4 + 1] * 2
        assert dist.get_backend(half) == "nccl"

    on_ranks(4, program)


def test_split_group() -> None:
    def program() -> None:
        rank = dist.get_rank()
        group = dist.split_group(split_ranks=[[0, 1], [2, 3]])
        assert group is not None
        x = value(rank)
        dist.all_reduce(x, group=group)
        assert x.tolist() == [rank // 2 * 4 + 1] * 2
        assert dist.get_process_group_ranks(group) == [rank // 2 * 2, rank // 2 * 2 + 1]

    def bound() -> None:
        rank = int(os.environ["RANK"])
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        program()

    lab.run_ranks(bound, 4)


def test_a_mesh_of_two_dimensions_and_its_groups() -> None:
    def program() -> None:
        mesh = init_device_mesh("cuda", (2, 3), mesh_dim_names=("replicate", "shard"))
        rank = dist.get_rank()
        assert tuple(mesh.get_coordinate() or ()) == (rank // 3, rank % 3)
        x = value(rank)
        dist.all_reduce(x, group=mesh.get_group("shard"))
        assert x.tolist() == [3 * (3 * (rank // 3) + 1)] * 2
        x = value(rank)
        dist.all_reduce(x, group=mesh["replicate"].get_group())
        assert x.tolist() == [2 * (rank % 3) + 3] * 2
        flat = mesh._flatten("all")
        x = value(1)
        dist.all_reduce(x, group=flat.get_group())
        assert x.tolist() == [6, 6]

    on_ranks(6, program)


def test_a_mesh_takes_the_ranks_device() -> None:
    def program() -> int:
        init_device_mesh("cuda", (3,))
        return torch.cuda.current_device()

    assert lab.run_ranks(program, 3) == [0, 1, 2]


def test_functional_collectives() -> None:
    def program() -> None:
        rank, group = dist.get_rank(), dist.group.WORLD
        assert group is not None
        x = torch.arange(6.0, device="cuda").reshape(6, 1) + rank
        expected = sum(torch.arange(6.0).reshape(6, 1) + i for i in range(3))
        assert torch.equal(funcol.all_reduce(x, "sum", group).cpu(), expected)
        assert torch.equal(
            funcol.reduce_scatter_tensor(x, "avg", 0, group).cpu(), expected[2 * rank : 2 * rank + 2] / 3
        )
        gathered = funcol.all_gather_tensor(x[:1], 0, group)
        assert gathered.flatten().tolist() == [0, 1, 2]
        assert funcol.all_gather_tensor(x[:1], 1, group).tolist() == [[0, 1, 2]]
        assert funcol.broadcast(x, 2, group).flatten().tolist() == [2, 3, 4, 5, 6, 7]
        swapped = funcol.all_to_all_single(x, None, None, group)
        assert swapped.flatten().tolist() == [v + i for i in range(3) for v in (2 * rank, 2 * rank + 1)]
        one, two = funcol.all_reduce_coalesced([x, x + 1], "max", group)
        assert torch.equal(two.cpu(), one.cpu() + 1)
        assert x.flatten().tolist() == [rank + i for i in range(6)]  # the input is as it was

        z = torch.ones(3, 2, device="cuda", requires_grad=True)
        funcol.all_gather_tensor_autograd(z * (rank + 1), 0, group).sum().backward()
        assert z.grad is not None
        assert z.grad.tolist() == [[3.0 * (rank + 1)] * 2] * 3

        host = funcol.all_reduce(torch.full((2,), rank), "sum", dist.new_group(backend="gloo"))
        assert host.tolist() == [3, 3]

    on_ranks(3, program)


def test_dtensors_redistribute_and_compute() -> None:
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    def program() -> None:
        mesh = init_device_mesh("cuda", (4,))
        torch.manual_seed(0)
        a, b = torch.randn(8, 6), torch.randn(6, 4)
        left = distribute_tensor(a.cuda(), mesh, [Shard(0)])
        right = distribute_tensor(b.cuda(), mesh, [Replicate()])
        assert left.to_local().shape == (2, 6)
        assert left.device == torch.device("cuda", dist.get_rank())
        product = left @ right
        assert product.placements == (Shard(0),)
        torch.testing.assert_close(product.full_tensor().cpu(), a @ b)
        assert product.redistribute(mesh, [Shard(1)]).to_local().shape == (8, 1)
        part = DTensor.from_local(torch.ones(2, device="cuda"), mesh, [Partial()])
        assert part.full_tensor().tolist() == [4, 4]
        assert product.sum().full_tensor().item() == pytest.approx((a @ b).sum().item(), abs=1e-4)

    on_ranks(4, program)


@pytest.mark.parametrize("how", ["env", "tcp", "file", "store", "filestore"])
def test_rendezvous(how: str, tmp_path: Path) -> None:
    def program() -> None:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        torch.cuda.set_device(rank)
        given: dict[str, Any] = {"rank": rank, "world_size": world}
        if how == "env":
            given = {"init_method": "env://"}
        elif how == "tcp":
            given["init_method"] = "tcp://localhost:23456"
        elif how == "file":
            given["init_method"] = (tmp_path / "meeting").as_uri()
        elif how == "store":
            given["store"] = dist.TCPStore("localhost", 29501, world, rank == 0)
        else:
            given["store"] = dist.FileStore(str(tmp_path / "keys"), world)
        dist.init_process_group("nccl", **given)
        x = value(rank)
        dist.all_reduce(x)
        assert x.tolist() == [3, 3]
        dist.destroy_process_group()
        dist.init_process_group("gloo", **given)  # and once more
        dist.barrier()
        assert dist.get_backend() == "gloo"

    lab.run_ranks(program, 3)


def test_a_store_waits_for_keys_of_other_ranks() -> None:
    def program() -> bytes:
        rank = int(os.environ["RANK"])
        store = dist.TCPStore("localhost", 29502, 2, is_master=rank == 0)
        if rank == 1:
            store.set("word", "from rank 1")
            store.add("count", 2)
            store.add("count", 3)
        found = store.get("word")
        assert int(store.get("count")) == 5
        return found

    assert lab.run_ranks(program, 2) == [b"from rank 1"] * 2


def test_one_process_alone_can_have_a_group() -> None:
    """As notebooks do that were written for torchrun: a world of one, outside of ranks."""
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        x = value(3)
        dist.all_reduce(x)
        assert x.tolist() == [3, 3]
        gathered = torch.empty(2, device="cuda")
        dist.all_gather_into_tensor(gathered, x)
        dist.barrier()
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
        ddp(x[None]).sum().backward()
    finally:
        dist.destroy_process_group()


def test_what_ranks_did_is_gone_afterwards() -> None:
    before = dist.distributed_c10d._world, dict(os.environ), torch.get_rng_state(), dist.TCPStore
    lab.run_ranks(lambda: dist.init_process_group("nccl"), 2)
    assert dist.distributed_c10d._world is before[0]
    assert dict(os.environ) == before[1]
    assert torch.equal(torch.get_rng_state(), before[2])
    assert dist.TCPStore is before[3]
    assert not dist.is_initialized()
    lab.disable()
    assert dist.is_nccl_available() is (torch.version.cuda is not None)  # a CUDA build has it


def test_a_tensor_that_wraps_another_is_waited_for_or_refused() -> None:
    def program() -> None:
        x = funcol.all_reduce(value(1), "sum", dist.group.WORLD)
        dist.all_reduce(x)
        assert x.tolist() == [4.0] * 2
        with pytest.raises(lab.FakeGpuError, match="tensors of a subclass"):
            dist.all_reduce(TwoTensor(value(1), value(2)))

    on_ranks(2, program)


def test_what_a_collective_is_still_writing_goes_into_no_graph() -> None:
    def program() -> None:
        with (
            pytest.raises(lab.FakeGpuError, match="Wait for the collective first"),
            funcol.allow_inflight_collective_as_graph_input_ctx(),
        ):
            pass

    on_ranks(1, program)
