"""Every operation × 2, 3 and 8 ranks × dtypes, against what the inputs say the result must be."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

    Tensor = torch.Tensor

pytestmark = pytest.mark.usefixtures("gpus")

WORLDS = (2, 3, 8)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)
NUMBERS = FLOATS + INTEGERS
MOVED = (*NUMBERS, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2)


def given(rank: int, dtype: torch.dtype, shape: tuple[int, ...] = (4, 3), salt: int = 0) -> Tensor:
    """A rank's input, on the host: small whole numbers, whose sums and products are exact in every dtype."""
    count = functools.reduce(int.__mul__, shape, 1)
    values = (torch.arange(count) * (rank + 2) + rank + salt) % 4
    if dtype is torch.bool:
        return (values % 3 == 0).reshape(shape)
    return values.float().to(dtype).reshape(shape)


def same(found: Tensor, expected: Tensor) -> None:
    assert found.is_cuda
    assert found.dtype == expected.dtype
    assert torch.equal(plain(found.cpu()), plain(expected)), (found, expected)


def plain(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point else tensor


def inputs(dtype: torch.dtype, **more: Any) -> list[Tensor]:
    return [given(rank, dtype, **more) for rank in range(dist.get_world_size())]


REDUCTIONS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "SUM": lambda tensors: torch.stack(tensors).sum(0, dtype=tensors[0].dtype),
    "PRODUCT": lambda tensors: torch.stack(tensors).prod(0, dtype=tensors[0].dtype),
    "MIN": lambda tensors: torch.stack(tensors).amin(0),
    "MAX": lambda tensors: torch.stack(tensors).amax(0),
}


def mean(tensors: list[Tensor]) -> Tensor:
    if not tensors[0].dtype.is_floating_point:
        return torch.div(torch.stack(tensors).sum(0), len(tensors), rounding_mode="trunc").to(tensors[0].dtype)
    return functools.reduce(torch.add, [tensor * (1 / len(tensors)) for tensor in tensors])


@pytest.mark.parametrize("world", WORLDS)
def test_all_reduce_reduce_and_reduce_scatter(world: int) -> None:
    def program() -> None:
        rank = dist.get_rank()
        for dtype in NUMBERS:
            for name, expected in [*REDUCTIONS.items(), ("AVG", mean)]:
                op = getattr(dist.ReduceOp, name)
                total = expected(inputs(dtype))
                x = given(rank, dtype).cuda()
                dist.all_reduce(x, op)
                same(x, total)
                x = given(rank, dtype).cuda()
                dist.reduce(x, world - 1, op)
                same(x, total if rank == world - 1 else given(rank, dtype))
                wide = inputs(dtype, shape=(world * 2, 3))
                out = torch.empty(2, 3, dtype=dtype, device="cuda")
                dist.reduce_scatter_tensor(out, wide[rank].cuda(), op)
                same(out, expected(wide)[rank * 2 : rank * 2 + 2])
                out = torch.empty(2, 3, dtype=dtype, device="cuda")
                dist.reduce_scatter(out, [part.clone() for part in wide[rank].cuda().chunk(world)], op)
                same(out, expected(wide)[rank * 2 : rank * 2 + 2])

    on_ranks(world, program)


@pytest.mark.parametrize("world", WORLDS)
def test_moving_operations(world: int) -> None:
    def program() -> None:
        rank = dist.get_rank()
        for dtype in MOVED:
            values = inputs(dtype)
            mine = given(rank, dtype).cuda()

            def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
                return torch.empty(shape, dtype=dtype, device="cuda")

            x = mine.clone()
            dist.broadcast(x, world - 1)
            same(x, values[-1])

            gathered = [empty(4, 3) for _ in range(world)]
            dist.all_gather(gathered, mine)
            for found, expected in zip(gathered, values, strict=True):
                same(found, expected)

            flat = empty(4 * world, 3)
            dist.all_gather_into_tensor(flat, mine)
            same(flat, torch.cat(values))
            stacked = empty(world, 4, 3)
            dist.all_gather_into_tensor(stacked, mine)
            same(stacked, torch.stack(values))

            gathered = [empty(4, 3) for _ in range(world)] if rank == 1 else []
            dist.gather(mine, gathered or None, dst=1)
            for found, expected in zip(gathered, values if rank == 1 else [], strict=True):
                same(found, expected)

            out = empty(4, 3)
            dist.scatter(out, [value.cuda() for value in values] if rank == 1 else None, src=1)
            same(out, given(rank, dtype))

            parts = [[given(i, dtype, (2,), salt=j) for j in range(world)] for i in range(world)]
            outs = [empty(2) for _ in range(world)]
            dist.all_to_all(outs, [part.cuda() for part in parts[rank]])
            for source, found in enumerate(outs):
                same(found, parts[source][rank])

            wide = inputs(dtype, shape=(world * 2, 3))
            out = empty(world * 2, 3)
            dist.all_to_all_single(out, wide[rank].cuda())
            same(out, torch.cat([value[rank * 2 : rank * 2 + 2] for value in wide]))

    on_ranks(world, program)


@pytest.mark.parametrize("world", WORLDS)
def test_uneven_shares(world: int) -> None:
    """all_to_all_single with split sizes, lists of unequal tensors: as mixtures of experts use them."""

    def program() -> None:
        rank = dist.get_rank()
        sizes = [[(i + j) % 3 for j in range(world)] for i in range(world)]  # from i to j
        full = [torch.arange(sum(row)) + 100 * i for i, row in enumerate(sizes)]
        out = torch.empty(sum(row[rank] for row in sizes), dtype=torch.int64, device="cuda")
        dist.all_to_all_single(out, full[rank].cuda(), [row[rank] for row in sizes], sizes[rank])
        same(out, torch.cat([full[i].split(sizes[i])[rank] for i in range(world)]))

        outs = [torch.empty(i + 1, device="cuda") for i in range(world)]
        dist.all_gather(outs, torch.full((rank + 1,), float(rank), device="cuda"))
        for i, found in enumerate(outs):
            same(found, torch.full((i + 1,), float(i)))

        out = torch.empty(rank + 1, device="cuda")
        dist.reduce_scatter(out, [torch.ones(i + 1, device="cuda") for i in range(world)])
        same(out, torch.full((rank + 1,), float(world)))

    on_ranks(world, program)


@pytest.mark.parametrize("world", WORLDS)
def test_sends_and_receives(world: int) -> None:
    def program() -> None:
        rank = dist.get_rank()
        right, left = (rank + 1) % world, (rank - 1) % world
        for dtype in MOVED:
            mine, out = given(rank, dtype).cuda(), torch.empty(4, 3, dtype=dtype, device="cuda")
            if rank == 0:
                dist.send(mine, right)
                mine.zero_()  # what was sent is sent
                assert dist.recv(out, left) == left
            else:
                assert dist.recv(out, left) == left
                dist.send(mine, right)
            same(out, given(left, dtype))

        mine, out = given(rank, torch.float32).cuda(), torch.empty(4, 3, device="cuda")
        operations = [dist.P2POp(dist.irecv, out, left), dist.P2POp(dist.isend, mine, right)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        same(out, given(left, torch.float32))

        first, second = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
        operations = [dist.P2POp(dist.isend, torch.full((1,), float(i), device="cuda"), right) for i in (1, 2)]
        operations += [dist.P2POp(dist.irecv, first, left), dist.P2POp(dist.irecv, second, left)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        assert (first.item(), second.item()) == (1, 2)  # in the order in which they were sent

    on_ranks(world, program)


def test_who_waits_for_the_device_waits_for_what_runs_beside_its_stream() -> None:
    def program() -> tuple[float, list[float], int]:
        x = torch.ones(2, device="cuda")
        if dist.get_rank() == 1:
            torch.cuda._sleep(10**7)
        with lab.record() as trace:
            dist.all_reduce(x, async_op=True)
            torch.cuda.synchronize()
        return lab.clock(), x.tolist(), len(trace.collectives)

    first, second = on_ranks(2, program)
    assert first == second, "rank 0 waits for rank 1, which came later"


def test_who_waits_for_the_device_hangs_where_a_rank_never_joins() -> None:
    def program() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(2, device="cuda"), async_op=True)
            torch.cuda.synchronize()

    with pytest.raises(RuntimeError, match=r"rank 0 .*all_reduce"):
        on_ranks(2, program)


@pytest.mark.parametrize("world", WORLDS)
def test_work_handles_futures_and_coalescing(world: int) -> None:
    def program() -> None:
        rank, total = dist.get_rank(), float(sum(range(world)))
        x = torch.full((3,), float(rank), device="cuda")
        work = dist.all_reduce(x, async_op=True)
        assert work.wait()
        assert work.is_completed()
        assert work.is_success()
        same(x, torch.full((3,), total))

        y = torch.full((3,), float(rank), device="cuda")
        future = dist.all_reduce(y, async_op=True).get_future().then(lambda done: done.value()[0] / world)
        same(future.wait(), torch.full((3,), total) / world)

        xs = [torch.full((i + 1,), float(rank), device="cuda") for i in range(3)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for one in xs:
                dist.all_reduce(one)
        manager.wait()
        for i, one in enumerate(xs):
            same(one, torch.full((i + 1,), total))

        outs = [torch.empty((i + 1) * world, device="cuda") for i in range(2)]
        with dist._coalescing_manager():
            for i, out in enumerate(outs):
                dist.all_gather_into_tensor(out, torch.full((i + 1,), float(rank), device="cuda"))
        for i, out in enumerate(outs):
            same(out, torch.arange(world).repeat_interleave(i + 1).float())

        outs = [torch.empty(i + 1, device="cuda") for i in range(2)]
        with dist._coalescing_manager():
            for i, out in enumerate(outs):
                dist.reduce_scatter_tensor(out, torch.full(((i + 1) * world,), float(rank), device="cuda"))
        for i, out in enumerate(outs):
            same(out, torch.full((i + 1,), total))

        while not (work := dist.barrier(async_op=True)).is_completed():
            pass
        work.wait()

    on_ranks(world, program)


@pytest.mark.parametrize("world", WORLDS)
def test_objects(world: int) -> None:
    def program() -> None:
        rank = dist.get_rank()
        found: list[Any] = [None] * world
        dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
        assert found == [{"rank": i, "text": "x" * i} for i in range(world)]
        box: list[Any] = ["from 1", {1: 2}] if rank == 1 else [None, None]
        dist.broadcast_object_list(box, src=1)
        assert box == ["from 1", {1: 2}]
        gathered: list[Any] | None = [None] * world if rank == 0 else None
        dist.gather_object(rank, gathered)
        assert rank or gathered == list(range(world))
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, [f"for {i}" for i in range(world)] if rank == 0 else None)
        assert mine == [f"for {rank}"]
        if rank == 0:
            dist.send_object_list([1, "two"], 1)
        elif rank == 1:
            two: list[Any] = [None, None]
            dist.recv_object_list(two, 0)
            assert two == [1, "two"]

    on_ranks(world, program)


def test_premultiplied_sum_and_booleans() -> None:
    def program() -> None:
        rank = dist.get_rank()
        x = torch.full((2,), float(rank + 1), device="cuda")
        dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
        same(x, torch.full((2,), 3.0))
        flags = torch.tensor([rank == 0, False], device="cuda")
        dist.all_reduce(flags)
        same(flags, torch.tensor([True, False]))

    on_ranks(3, program)


def test_complex_numbers_are_summed_as_pairs() -> None:
    def program() -> None:
        x = torch.tensor([1 + 2j, 3j], device="cuda") * (dist.get_rank() + 1)
        dist.all_reduce(x)
        same(x, torch.tensor([3 + 6j, 9j]))

    on_ranks(2, program)


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo,cuda:nccl"])
def test_cpu_tensors_go_by_gloo(backend: str) -> None:
    def program() -> None:
        rank = dist.get_rank()
        x = torch.full((2,), rank + 1)
        dist.all_reduce(x)
        assert x.tolist() == [6, 6]
        dist.all_reduce(x, dist.ReduceOp.BOR)
        assert x.tolist() == [6, 6]
        y = torch.full((2,), float(rank), device="cuda")
        dist.all_reduce(y)
        same(y, torch.full((2,), 3.0))
        if backend == "gloo":
            dist.monitored_barrier()
            if rank == 0:
                found = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
                assert {dist.recv(found[0]), dist.recv(found[1])} == {1, 2}
            else:
                dist.send(torch.tensor([rank]), 0)
            tagged = torch.zeros(1)
            if rank == 1:
                for work in [dist.isend(torch.ones(1), 2, tag=7), dist.isend(torch.ones(1) * 2, 2, tag=8)]:
                    work.wait()
            elif rank == 2:
                dist.recv(tagged, 1, tag=8)
                assert tagged.item() == 2
                dist.recv(tagged, 1, tag=7)
                assert tagged.item() == 1
        dist.barrier()

    on_ranks(3, program, backend=backend)


def test_without_a_backend_named() -> None:
    def program() -> None:
        assert dist.is_nccl_available()
        x = torch.ones(2, device="cuda")
        dist.all_reduce(x)
        same(x, torch.full((2,), 2.0))

    on_ranks(2, program, backend=None)


def test_differentiable_collectives_that_a_rank_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module looks up the default group when it is imported: here by a rank, whose group is not that of others."""
    lab.disable()
    for name in [name for name in sys.modules if name.startswith("torch.distributed.nn")]:
        monkeypatch.delitem(sys.modules, name)
    lab.enable("a100:2")

    def program() -> list[float]:
        from torch.distributed.nn import functional

        x = torch.full((2,), float(dist.get_rank() + 1), device="cuda", requires_grad=True)
        y = functional.all_to_all_single(torch.empty_like(x), x)  # type: ignore[no-untyped-call]
        (y * y).sum().backward()
        assert x.grad is not None
        return [*y.tolist(), *x.grad.tolist()]

    assert on_ranks(2, program) == [[1, 2, 2, 2], [1, 2, 4, 4]]
