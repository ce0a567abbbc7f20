"""What programs call on groups and backends directly: short forms, hooks on completion, Gloo with device tensors."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab
from fakegpu_lab.ranks.process_groups import functional_collectives
from tests.ranks.conftest import on_ranks
from tests.ranks.test_broken import _imported, contains, message, ones  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("gpus")


def value(number: float) -> torch.Tensor:
    return torch.full((2,), float(number), device="cuda")


def test_methods_of_a_group_take_single_tensors_and_a_root() -> None:
    def program() -> None:
        rank, group = dist.get_rank(), c10d._get_default_group()
        mine, all_of_them = value(rank), [value(-1) for _ in range(2)] if rank == 0 else []
        group.gather(all_of_them, mine, 0).wait()
        assert [one.tolist() for one in all_of_them] == ([[0, 0], [1, 1]] if rank == 0 else [])
        group.broadcast(mine, 1).wait()
        assert mine.tolist() == [1, 1]
        group.reduce(mine, 0, dist.ReduceOp.SUM).wait()
        assert rank == 1 or mine.tolist() == [2, 2]
        group.scatter(mine, [value(5), value(6)] if rank == 0 else [], 0).wait()
        assert mine.tolist() == [5 + rank] * 2

    on_ranks(2, program)


def test_options_of_another_kind_are_a_type_error_and_an_empty_list_has_no_device() -> None:
    def program() -> None:
        group = c10d._get_default_group()
        with pytest.raises(TypeError, match="incompatible function arguments"):
            group.gather([[value(0)]], [value(0)], 0)
        with pytest.raises(RuntimeError, match="There were no tensor arguments to this function"):
            group.gather([[value(0)]], [])

    on_ranks(1, program)


def test_hooks_on_completion_are_refused() -> None:
    def program() -> None:
        with pytest.raises(lab.FakeGpuError, match=r"\(_register_on_completion_hook\) is not simulated\."):
            c10d._get_default_group()._register_on_completion_hook(print)

    on_ranks(1, program)


def test_ddp_trains_on_gpus_over_gloo() -> None:
    def program() -> list[float]:
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).cuda())
        model(value(dist.get_rank())).sum().backward()
        assert model._get_ddp_logging_data()["backend_name"] == "gloo"
        return model.module.weight.grad.tolist()  # type: ignore[no-any-return, union-attr]

    assert on_ranks(2, program, backend="gloo") == [[[0.5, 0.5]]] * 2


def test_gloo_does_not_add_up_sparse_tensors_here() -> None:
    def program() -> None:
        with pytest.raises(lab.FakeGpuError, match="all-reduce of sparse tensors"):
            dist.all_reduce(torch.eye(2).to_sparse())

    on_ranks(1, program, backend="gloo")


def test_nccl_does_not_reduce_sparse_tensors() -> None:
    def program() -> None:
        with pytest.raises(RuntimeError, match="NCCL does not support all_reduce with sparse tensors"):
            dist.all_reduce(torch.eye(2).to_sparse().cuda())

    on_ranks(1, program)


def test_gloo_reduces_a_tensor_that_is_listed_twice_as_it_was_at_the_call() -> None:
    def program() -> list[float]:
        x = torch.ones(1)
        with pytest.warns(FutureWarning, match="all_reduce_coalesced"):
            dist.all_reduce_coalesced([x, x])
        return x.tolist()  # type: ignore[no-any-return]

    assert on_ranks(2, program, backend="gloo") == [[2.0]] * 2


def test_torchs_own_gloo_backend_takes_tensors_of_the_host() -> None:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    gloo = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, options)
    x = torch.ones(2)
    gloo.allreduce([x]).wait()
    for call in (lambda: gloo.allreduce([x.cuda()]), lambda: gloo.allgather([[x.cuda()]], [x.cuda()])):
        with pytest.raises(lab.FakeGpuError, match=r"called directly with tensors of a device, is not simulated\."):
            call()


def test_nan_that_a_rank_sends_fails_an_assert(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("TORCH_NCCL_NAN_CHECK", "1")

    def program() -> None:
        dist.all_reduce(value(1))
        with pytest.raises(RuntimeError, match="device-side assert triggered"):
            dist.all_reduce(value(float("nan")))

    on_ranks(1, program)
    assert "checkForNaN: block: [0,0,0], thread: [0,0,0] Assertion" in capsys.readouterr().out


def test_a_switch_of_nccl_that_is_no_boolean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "abc")
    with pytest.raises(RuntimeError, match="Invalid value for environment variable: TORCH_NCCL_BLOCKING_WAIT"):
        on_ranks(1, lambda: None)


def test_backends_have_options_with_the_groups_timeout_and_count_splits() -> None:
    def program() -> list[Any]:
        where = torch.device("cuda", dist.get_rank())
        backend = c10d._get_default_group()._get_backend(where)
        assert backend.options._timeout == dt.timedelta(seconds=123)
        assert backend._is_initialized() == (c10d._get_default_group().bound_device_id is not None)
        dist.new_group([0])
        return [backend.comm_split_count(), c10d._get_process_group_uid(c10d._get_default_group())]

    assert on_ranks(2, program, timeout=dt.timedelta(seconds=123)) == [[0, 0]] * 2

    def bound() -> list[Any]:
        dist.destroy_process_group()
        where = torch.device("cuda", int(os.environ["RANK"]))
        dist.init_process_group("nccl", device_id=where, timeout=dt.timedelta(seconds=123))
        return program()

    assert on_ranks(2, bound) == [[1, 0]] * 2


def test_a_group_of_nccl_that_torch_distributed_does_not_know_and_its_end() -> None:
    def program() -> None:
        group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, timeout=dt.timedelta(seconds=5))
        x = value(3)
        group.allreduce([x]).wait()
        assert x.tolist() == [3, 3]
        group.shutdown()
        with pytest.raises(dist.DistBackendError, match="NCCL communicator was aborted on rank 0"):
            group.allreduce([x])

    on_ranks(1, program)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_all_to_all_of_one_tensor_takes_contiguous_ones(backend: str) -> None:
    def program() -> None:
        x, y = torch.ones(2, 2, device="cuda"), torch.empty(2, 2, device="cuda")
        with pytest.raises(ValueError, match="Tensors must be contiguous"):
            dist.all_to_all_single(y, x.t())

    on_ranks(1, program, backend=backend)


def test_a_graph_calls_its_collectives_at_every_replay() -> None:
    def program() -> tuple[list[float], list[float], list[float]]:
        rank = dist.get_rank()
        x, result = value(rank + 1), value(0)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            doubled = x * 2
            work = dist.all_reduce(doubled, async_op=True)
            work.wait()
            result.copy_(doubled + rank)
        captured = result.tolist()
        graph.replay()
        first = result.tolist()
        x.fill_(10)
        graph.replay()
        return captured, first, result.tolist()

    with lab.record() as trace:
        on = on_ranks(2, program)
    assert on == [([0, 0], [6 + rank] * 2, [40 + rank] * 2) for rank in range(2)]
    assert [each.name for each in trace.collectives] == ["nccl:all_reduce"] * 4


@pytest.mark.parametrize(("backend", "call"), [("gloo", "all_reduce"), ("nccl", "barrier")])
def test_what_waits_on_the_host_cannot_be_captured(backend: str, call: str) -> None:
    def program() -> None:
        x, graph = value(1), torch.cuda.CUDAGraph()
        with (
            pytest.raises(RuntimeError, match=rf"^{call} cannot be captured into a CUDA graph in the simulation"),
            torch.cuda.graph(graph),
        ):
            dist.all_reduce(x) if call == "all_reduce" else dist.barrier()
        assert x.tolist() == [1, 1]

    on_ranks(1, program, backend=backend)


def test_functional_collectives_call_the_methods_of_groups_that_are_not_ours() -> None:
    class Doubling(dist.ProcessGroup):  # type: ignore[misc]
        def all_gather_single(self, output: torch.Tensor, given: torch.Tensor, opts: Any = None) -> Any:
            output.copy_(given.repeat(2))
            return FakeWork()

        _allgather_base = all_gather_single

    group = Doubling(0, 2)
    got = functional_collectives.all_gather_into_tensor(value(3), 2, group)
    assert functional_collectives.wait_tensor(got).tolist() == [3.0] * 4


def test_a_send_to_a_rank_that_waits_for_a_key_of_a_store() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.send(ones(), dst=1)
            torch.cuda.synchronize()
        else:
            c10d._get_default_store().get("never set")

    contains(
        message(program),
        "Likely cause: rank 0's send of [4] float32 to rank 1",
        "rank 1 waits for the key 'default_pg/0//never set' of a store",
    )
