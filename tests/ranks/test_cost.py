"""Operations between ranks in simulated time: what they cost, what they overlap with, who waits for whom."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fakegpu_lab.hardware.network.nccl import Operation
    from fakegpu_lab.hardware.time.records import Collective


@pytest.fixture
def shapes_alone() -> Iterator[None]:
    lab.enable("a100:8", compute="meta")
    yield
    lab.disable()


def recorded(world: int, fn: Callable[[], Any]) -> lab.Trace:
    """What happens in `fn`, on all ranks, from the moment at which all are there."""

    def program() -> Any:
        fn()  # streams are taken, workspaces too
        torch.cuda.synchronize()
        dist.barrier(device_ids=[dist.get_rank()])
        with lab.record() as trace:
            dist.barrier(device_ids=[dist.get_rank()])
            fn()
            torch.cuda.synchronize()
            dist.barrier(device_ids=[dist.get_rank()])
        return trace

    trace: lab.Trace = on_ranks(world, program)[0]
    return trace


def parts(trace: lab.Trace, operation: str) -> list[Collective]:
    return [part for part in trace.collectives if part.operation == operation]


MIB = 1 << 20
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # their names since torch 2.13
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
OPERATIONS: dict[Operation, tuple[int, Callable[[int], Any]]] = {
    "all_reduce": (MIB, lambda n: dist.all_reduce(torch.ones(MIB // 4, device="cuda"))),
    "broadcast": (MIB, lambda n: dist.broadcast(torch.ones(MIB // 4, device="cuda"), 0)),
    "reduce": (MIB, lambda n: dist.reduce(torch.ones(MIB // 4, device="cuda"), 0)),
    "all_gather": (
        4 * MIB,
        lambda n: all_gather(torch.ones(MIB, device="cuda"), torch.ones(MIB // n, device="cuda")),
    ),
    "reduce_scatter": (
        4 * MIB,
        lambda n: reduce_scatter(torch.ones(MIB // n, device="cuda"), torch.ones(MIB, device="cuda")),
    ),
    "all_to_all": (
        4 * MIB,
        lambda n: dist.all_to_all_single(torch.ones(MIB, device="cuda"), torch.ones(MIB, device="cuda")),
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_takes_what_the_fabric_says(shapes_alone: None, operation: Operation) -> None:
    nbytes, call = OPERATIONS[operation]
    trace = recorded(4, lambda: call(4))
    found = parts(trace, operation)
    cost = lab.machine().fabric.cost(operation, range(4), nbytes)
    assert [part.rank for part in found] == [part.device for part in found] == [0, 1, 2, 3]
    for part in found:
        assert (part.nbytes, part.ranks) == (nbytes, (0, 1, 2, 3))
        assert part.end_ns - part.joined_ns == cost.ns
        assert (part.algorithm, part.protocol, part.bus_bandwidth) == (
            cost.algorithm,
            cost.protocol,
            cost.bus_bandwidth,
        )
        assert part.thread == f"rank {part.rank}"
        assert "test_cost.py" in part.line
    assert len({(part.number, part.joined_ns, part.end_ns) for part in found}) == 1
    for device in lab.snapshot().devices[:4]:
        assert device.counters.collective_count == 5  # twice, and three barriers
        assert device.counters.collective_bytes == 2 * nbytes + 3 * 4


def test_a_call_from_python_takes_longer_than_nccl(shapes_alone: None) -> None:
    """Timed between two events, as programs do: torch.distributed prepares the call while the card waits."""

    def program() -> float:
        tensor = torch.ones(MIB // 4, device="cuda")
        for _ in range(2):
            dist.barrier(device_ids=[dist.get_rank()])
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            dist.all_reduce(tensor)
            end.record()
            torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3

    nccl = lab.machine().fabric.cost("all_reduce", range(8), MIB).ns / 1e3
    assert nccl + 10 < on_ranks(8, program)[0] < nccl + 25


def test_all_wait_for_the_slowest_rank(shapes_alone: None) -> None:
    def program() -> None:
        if dist.get_rank() == 2:
            a = torch.ones(4096, 4096, device="cuda")
            a @ a
        dist.all_reduce(torch.ones(1024, device="cuda"))

    trace = recorded(4, program)
    found = parts(trace, "all_reduce")
    slow = max(k.end_ns for k in trace.kernels if k.device == 2 and k.correlation < found[0].correlation)
    assert [part.joined_ns for part in found] == [slow] * 4
    assert [part.waited > 1e-3 for part in found] == [True, True, False, True]
    waited = [device.counters.collective_wait_ns > 2_000_000 for device in lab.snapshot().devices[:4]]
    assert waited == [True, True, False, True]


def test_an_operation_overlaps_with_kernels_until_it_is_waited_for(shapes_alone: None) -> None:
    def program() -> None:
        a, big = torch.ones(2048, 2048, device="cuda"), torch.ones(128 * MIB, device="cuda")
        work = dist.all_reduce(big, async_op=True)
        a @ a
        work.wait()
        big.mul_(2)

    trace = recorded(2, program)
    found = parts(trace, "all_reduce")
    assert len(found) == 2
    for rank, part in enumerate(found):
        mine = [kernel for kernel in trace.kernels if kernel.device == rank]
        product, after = (next(k for k in mine if k.name == name) for name in ("aten::mm", "aten::mul_"))
        assert part.stream != product.stream == after.stream
        assert part.start <= product.start < product.end < part.end <= after.start


def four_all_reduces(x: torch.Tensor) -> list[Any]:
    return [dist.all_reduce(x @ x, async_op=True) for _ in range(4)]


def four_messages(x: torch.Tensor) -> list[Any]:
    if dist.get_rank() == 0:
        return [dist.isend(x @ x, 1) for _ in range(4)]
    return [dist.irecv(torch.empty_like(x), 0) for _ in range(4)]


@pytest.mark.parametrize("start", [four_all_reduces, four_messages])
def test_operations_under_way_together_each_wait_for_their_own_tensor_only(
    shapes_alone: None, start: Callable[[torch.Tensor], list[Any]]
) -> None:
    """One rank starts all four before the other comes: the first must not wait for what the last needs."""

    def program() -> None:
        for work in start(torch.empty(2048, 2048, device="cuda")):
            work.wait()

    trace = recorded(2, program)
    products = [kernel.end_ns for kernel in trace.kernels if kernel.flops > 1e9 and kernel.device == 0]
    started = [part.joined_ns for part in trace.collectives if part.device == 0 and part.operation != "barrier"]
    assert len(products) == len(started) == 4
    assert all(0 <= begin - product < 50_000 for product, begin in zip(products, started, strict=True))


def test_a_receiver_waits_for_the_sender_and_a_sender_for_the_receiver(shapes_alone: None) -> None:
    def late(rank: int) -> None:
        if dist.get_rank() == rank:
            torch.ones(2048, 2048, device="cuda") @ torch.ones(2048, 2048, device="cuda")

    def program() -> None:
        x = torch.ones(MIB, device="cuda")
        for slow in (0, 1):
            torch.cuda.synchronize()
            dist.barrier(device_ids=[dist.get_rank()])
            late(slow)
            if dist.get_rank() == 0:
                dist.send(x, 1)
            else:
                dist.recv(x, 0)
            x.add_(1)

    trace = recorded(2, program)
    cost = lab.machine().fabric.cost("send", (0, 1), 4 * MIB)
    sends = parts(trace, "send")
    assert len(sends) == 4  # two times two parts
    for slow, pair in ((0, sends[:2]), (1, sends[2:])):
        product = [kernel for kernel in trace.kernels if kernel.name == "aten::mm"][slow]
        assert product.device == slow
        assert [part.joined_ns >= product.end_ns for part in pair] == [True, True]
        assert pair[0].end_ns - pair[0].joined_ns == cost.ns
        for rank in (0, 1):
            after = [k for k in trace.kernels if k.device == rank and k.name == "aten::add_"][slow]
            assert after.start_ns >= pair[0].end_ns


def test_a_tensor_that_is_used_before_the_work_was_waited_for_is_a_race(shapes_alone: None) -> None:
    def program() -> None:
        x = torch.ones(MIB, device="cuda")
        work = dist.all_reduce(x, async_op=True)
        y = x * 2  # too early
        work.wait()
        y.add_(x)
        other = torch.ones(MIB, device="cuda")
        work = dist.broadcast(other, 0, async_op=True)
        other.cos()  # rank 0 gives, and does not change it
        work.wait()
        dist.all_reduce(x, async_op=True)  # never waited for, but nobody looks

    races = recorded(2, program).races
    early = [race for race in races if race.first == "nccl:all_reduce"]
    assert sorted((race.kind, race.device, race.first, race.second) for race in early) == [
        ("read after write", 0, "nccl:all_reduce", "aten::mul"),
        ("read after write", 1, "nccl:all_reduce", "aten::mul"),
    ]  # fmt: skip
    assert [(race.device, race.second) for race in races if race.first == "nccl:broadcast"] == [(1, "aten::cos")]
    assert len(races) == 3
    told = str(races[0])
    assert "call wait() on the work that all_reduce returned before the tensor is used." in told
    assert told.count("test_cost.py:") == 2


READS: dict[str, Callable[[torch.Tensor], object]] = {
    "tolist": lambda x: x.tolist(),
    "tolist of a part": lambda x: x[:3].tolist(),
    "print": str,
    "print a part": lambda x: repr(x[0]),
    "format": lambda x: f"{x[0]:.2f}",
    "item": lambda x: x[0].item(),
    "if": lambda x: bool(x[0] > 0),
    "equal": lambda x: torch.equal(x, x),
    "cpu": lambda x: x.cpu(),
}


@pytest.mark.parametrize("read", READS)
def test_what_the_host_reads_too_early_is_a_race(read: str) -> None:
    def program() -> None:
        rank = dist.get_rank()
        sent, got = torch.ones(1 << 16, device="cuda"), torch.zeros(1 << 16, device="cuda")
        calls = [dist.P2POp(dist.isend, sent, 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        works = dist.batch_isend_irecv(calls)
        if too_early:
            READS[read](got)
        for work in works:
            work.wait()
        READS[read](got)

    lab.enable("a100:2")
    try:
        for too_early in (False, True):
            races = recorded(2, program).races
            assert {race.first for race in races} == ({"nccl:recv"} if too_early else set())
    finally:
        lab.disable()


def test_gloo_takes_the_way_through_the_hosts(shapes_alone: None) -> None:
    def program() -> list[float]:
        times = []
        for device in ("cuda", "cpu"):
            x = torch.ones(MIB, device=device)
            torch.cuda.synchronize()
            dist.barrier()
            began = lab.clock()
            dist.all_reduce(x)
            torch.cuda.synchronize()
            times.append(lab.clock() - began)
        return times

    for cards, host in on_ranks(4, program, backend="gloo"):
        ring = 6 * 25e-6 + 4 * MIB * 1.5 / 2e9
        assert host == pytest.approx(ring, rel=0.01)
        assert cards > host + 2 * 4 * MIB / 26e9
    nccl = lab.machine().fabric.cost("all_reduce", range(4), 4 * MIB).ns
    assert cards > 20 * nccl / 1e9


class Tower(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(nn.Linear(512, 512) for _ in range(8)))


@pytest.fixture
def slow_cards(tmp_path: Path) -> Iterator[None]:
    """Four cards that compute slower than an A100, with a quick host: a small model keeps them busy."""
    card = tmp_path / "slow.yaml"
    card.write_text("based_on: a100\nname: Slow\npeak_flops: {fp32: 4 TFLOP/s}\n", encoding="utf-8")
    lab.enable(f"{card}:4", host="launches-only")
    yield
    lab.disable()


def test_ddps_buckets_overlap_with_backward_and_the_optimizer_waits_for_them(slow_cards: None) -> None:
    def step() -> None:
        tower = Tower().cuda()
        model = nn.parallel.DistributedDataParallel(tower, bucket_cap_mb=2)
        optimizer = torch.optim.SGD(tower.parameters(), 0.1)
        x = torch.ones(64, 512, device="cuda")
        for _ in range(2):  # DDP puts its buckets in the order of backward after the first
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

    trace = recorded(4, step)
    gradients = sum(p.nbytes for p in Tower().parameters())
    reduced = [part for part in parts(trace, "all_reduce") if part.rank == 1]
    last: list[Collective] = []
    while sum(part.nbytes for part in last) < gradients:
        last.insert(0, reduced.pop())
    assert sum(part.nbytes for part in last) == gradients
    assert len(last) > 3
    backward = [k for k in trace.kernels if k.device == 1 and k.backward and k.start > last[0].start - 1e-3]
    end = max(kernel.end for kernel in backward)
    assert all(part.start < end for part in last[:-1])
    assert {part.stream for part in last} != {0}
    updates = [k.start for k in trace.kernels if k.device == 1 and "_foreach_add" in k.name]
    assert max(updates) >= last[-1].end
    assert trace.races == []
    hidden = sum(min(part.end, end) - part.joined for part in last if part.joined < end)
    assert hidden > 0.7 * sum(part.end - part.joined for part in last)


def test_ddp_spares_what_data_parallel_pays(slow_cards: None) -> None:
    """The same step on four GPUs: inputs, parameters and outputs do not travel, gradients travel beside backward."""

    def step(model: nn.Module, x: torch.Tensor) -> None:
        model.zero_grad()
        model(x).sum().backward()
        torch.cuda.synchronize()

    def timed(model: nn.Module, x: torch.Tensor) -> float:
        for _ in range(2):
            step(model, x)
        began = lab.clock()
        step(model, x)
        return lab.clock() - began

    data_parallel = timed(nn.DataParallel(Tower().cuda()), torch.ones(256, 512))
    alone = timed(Tower().cuda(), torch.ones(64, 512).cuda())  # what each of four does
    lab.reset()

    def program() -> float:
        model = nn.parallel.DistributedDataParallel(Tower().cuda(), bucket_cap_mb=2)
        return timed(model, torch.ones(64, 512, device="cuda"))

    distributed = max(on_ranks(4, program))
    assert alone < distributed < 1.1 * alone
    assert data_parallel - alone > 1.5 * (distributed - alone)


def test_the_figure_has_lanes_by_rank_and_collectives_across(shapes_alone: None) -> None:
    pytest.importorskip("plotly")

    def program() -> None:
        if dist.get_rank() == 1:
            torch.ones(2048, 2048, device="cuda") @ torch.ones(2048, 2048, device="cuda")
        dist.all_reduce(torch.ones(MIB, device="cuda"), async_op=True).wait()

    trace = recorded(2, program)
    figure = trace.figure()
    lanes = [text.strip() for text in reversed(figure.layout.yaxis.ticktext)][::-1]
    ranks = [0 if "rank 0" in lane or "cuda:0" in lane else 1 for lane in lanes]
    assert ranks == sorted(ranks)
    assert lanes[0] == "host rank 0"
    across = next(drawn for drawn in figure.data if drawn.type == "bar" and drawn.hoverinfo == "skip")
    unit = {"s": 1e9, "ms": 1e6, "µs": 1e3}[figure.layout.xaxis.title.text.split()[0]]
    bands = [
        (round(base * unit), round((base + length) * unit)) for base, length in zip(across.base, across.x, strict=True)
    ]
    assert set(bands) == {(part.joined_ns - trace.began_ns, part.end_ns - trace.began_ns) for part in trace.collectives}
    assert across.width == len(lanes) + 0.2
    waits = next(drawn for drawn in figure.data if drawn.name == "collective waits for the slowest rank")
    assert len(waits.x) >= 1
    assert any(
        "all_reduce 4.00 MiB" in (text or "")
        for drawn in figure.data
        if drawn.type == "bar" and drawn.text
        for text in drawn.text
    )
    assert not any(drawn.type == "bar" and drawn.hoverinfo == "skip" for drawn in trace.figure(device=0).data)


def test_the_file_for_perfetto_tells_of_ranks(shapes_alone: None, tmp_path: Any) -> None:
    import json

    trace = recorded(2, lambda: dist.all_reduce(torch.ones(MIB, device="cuda")))
    events = json.loads(trace.to_chrome_trace(tmp_path / "t.json").read_text(encoding="utf-8"))["traceEvents"]
    found = [event for event in events if event.get("cat") == "collective" and event["name"] == "nccl:all_reduce"]
    assert [(event["args"]["rank"], event["args"]["ranks"], event["pid"]) for event in found] == [
        (0, "[0, 1]", 2), (1, "[0, 1]", 3),
    ]  # fmt: skip
    assert found[0]["args"]["number"] == found[1]["args"]["number"]


def test_sends_of_one_card_share_its_links(shapes_alone: None) -> None:
    nbytes = 64 << 20

    def seven(at_once: bool) -> Callable[[], Any]:
        def program() -> None:
            tensor = torch.empty(nbytes // 4, device="cuda")
            if dist.get_rank():
                dist.recv(tensor, 0)
            elif at_once:
                for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, to) for to in range(1, 8)]):
                    one.wait()
            else:
                for to in range(1, 8):
                    dist.send(tensor, to)

        return program

    def spent(at_once: bool) -> int:
        sends = recorded(8, seven(at_once)).collectives
        sends = [one for one in sends if one.name == "nccl:send" and one.rank == 0]
        assert len(sends) == 7
        return max(one.end_ns for one in sends) - min(one.joined_ns for one in sends)

    alone = lab.machine().fabric.cost("send", (0, 1), nbytes).on_links_ns
    assert spent(at_once=True) >= 7 * alone
    assert spent(at_once=False) >= 7 * alone


def test_what_comes_after_a_send_that_is_waited_for_is_no_race() -> None:
    """The stream waits for the send, whenever the other rank receives: here after the copy has been queued."""

    def program() -> list[float]:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        out = torch.full((4,), float(dist.get_rank()), device="cuda")
        theirs = torch.empty_like(out)
        if dist.get_rank() == 0:
            dist.send(out, 1)
            dist.recv(theirs, 1)
            return theirs.tolist()
        dist.recv(theirs, 0)
        dist.send(out, 0)
        out.copy_(theirs)
        return out.tolist()

    lab.enable("dgx-a100")
    try:
        with lab.record() as trace:
            found = lab.run_ranks(program, 2)
    finally:
        lab.disable()
    assert found == [[1.0] * 4, [0.0] * 4]
    assert trace.races == []


def test_a_functional_collective_races_only_with_what_does_not_wait_for_it(shapes_alone: None) -> None:
    def program(*, waits: bool) -> None:
        x = torch.ones(1024, device="cuda")
        y = torch.ops._c10d_functional.all_reduce(x, "sum", dist.group.WORLD.group_name)
        if waits:
            y = torch.ops._c10d_functional.wait_tensor(y)
        y.mul(2)
        torch.cuda.synchronize()

    for waits, races in ((True, set()), (False, {("nccl:all_reduce", "aten::mul")})):
        found = recorded(2, functools.partial(program, waits=waits)).races
        assert {(race.first, race.second) for race in found} == races
