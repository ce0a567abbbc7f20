"""Changes of one line, as a learner makes them: the comparison names what the change did, with its figures."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fakegpu_lab.comparison.causes import Cause


@pytest.fixture(autouse=True)
def switched_off() -> Iterator[None]:
    yield
    lab.disable()


def recorded(program: Callable[[], object]) -> lab.Trace:
    with lab.record() as trace:
        program()
    return trace


def both(before: Callable[[], object], after: Callable[[], object]) -> lab.Comparison:
    """Compare two programs; each runs once before, so that neither sees anything for the first time."""
    before()
    after()
    compared = lab.compare(recorded(before), recorded(after))
    balanced(compared)
    return compared


def balanced(compared: lab.Comparison) -> None:
    """What holds of every comparison: times add up, and so do the causes."""
    for side in (compared.before, compared.after):
        assert all(sum(kinds.values()) == side.elapsed_ns for kinds in side.sums.values())
    difference = compared.after_ns - compared.before_ns
    assert sum(cause.ns for cause in compared.causes) == pytest.approx(difference, abs=1)


def most(compared: lab.Comparison) -> Cause:
    """The cause that is named first, which the sentence has, too."""
    assert compared.causes[0].text in compared.sentence
    return compared.causes[0]


def network(width: int, depth: int = 4) -> nn.Module:
    return nn.Sequential(*(layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.GELU()))).cuda()


class Training:
    """A loop that trains, with what a learner may change in it."""

    def __init__(self, width: int, compute: Any = "meta", spec: str = "a100", **optimizer: Any) -> None:
        lab.enable(spec, compute=compute)
        self.model = network(width)
        kind = torch.optim.AdamW if optimizer else torch.optim.SGD
        self.optimizer = kind(self.model.parameters(), lr=1e-3, **optimizer)

    def __call__(self, batches: Sequence[torch.Tensor], *, item: bool = False, half: bool = False) -> None:
        losses: list[Any] = []
        for batch in batches:
            x = batch.to("cuda", non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16) if half else contextlib.nullcontext():
                loss = self.model(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item() if item else loss.detach())
        torch.cuda.synchronize()


def batches(count: int, rows: int, width: int) -> list[torch.Tensor]:
    return [torch.rand(rows, width).pin_memory() for _ in range(count)]


def test_pinned_memory() -> None:
    train = Training(1024)
    pageable = [torch.rand(8192, 1024) for _ in range(4)]
    pinned = [batch.pin_memory() for batch in pageable]
    compared = both(lambda: train(pageable), lambda: train(pinned))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("copies", "pinned")
    assert "pinned instead of pageable memory" in compared.sentence
    assert 'batch.to("cuda", non_blocking=True)' in compared.sentence  # the line
    copied = [sum(copy.end_ns - copy.start_ns for copy in side.recorded.transfers)
              for side in (compared.before, compared.after)]  # fmt: skip
    assert (cause.before_ns, cause.after_ns) == tuple(copied)  # nothing runs beside them, before or after
    back = lab.compare(compared.after.recorded, compared.before.recorded)
    assert (most(back).kind, most(back).reason) == ("copies", "pageable")
    assert back.speedup == pytest.approx(1 / compared.speedup)


def test_a_larger_batch() -> None:
    train = Training(256)
    compared = both(lambda: train(batches(16, 32, 256)), lambda: train(batches(4, 128, 256)))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("launching", "steps")
    assert "4 steps instead of 16" in compared.sentence
    assert "124 launches of kernels instead of 496" in compared.sentence
    assert compared.per_step is False  # all samples of the one, all samples of the other
    assert compared.speedup == pytest.approx(4, rel=0.05)


def test_a_larger_batch_in_the_same_number_of_steps() -> None:
    train = Training(1024)
    compared = both(lambda: train(batches(4, 64, 1024)), lambda: train(batches(4, 2048, 1024)))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("kernels", "work")
    assert "It does 32 times the arithmetic" in compared.sentence
    assert f"for the same arithmetic it is {32 * compared.speedup:.2f} times as fast" in compared.sentence


def test_autocast() -> None:
    train = Training(4096)
    data = batches(3, 4096, 4096)
    compared = both(lambda: train(data), lambda: train(data, half=True))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("kernels", "precision")
    assert "lower precision" in compared.sentence
    assert compared.speedup > 4
    faster = [row for row in compared.changes if row.other_precision]
    assert faster[0].name == "aten::linear_backward"
    assert {row.status for row in compared.changes if row.name == "aten::_to_copy"} == {"new"}


def test_a_cuda_graph() -> None:
    lab.enable("a100")
    model = network(256)
    x = torch.rand(64, 256, device="cuda")

    @torch.no_grad()
    def eager() -> None:
        for _ in range(8):
            model(x)
        torch.cuda.synchronize()

    eager()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        model(x)

    def replayed() -> None:
        for _ in range(8):
            graph.replay()
        torch.cuda.synchronize()

    compared = both(eager, replayed)
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("launching", "graph")
    assert "8 launches of kernels instead of 64, because CUDA graphs launch 64 of the 64 kernels" in compared.sentence
    assert [row for row in compared.changes if row.status != "same"] == []  # the same kernels
    assert "model(x)" in compared.sentence


def test_kernels_that_are_fused() -> None:
    train = Training(512, foreach=False)
    data = batches(3, 4096, 512)
    single = recorded(lambda: (train(data), train(data)))
    train = Training(512, fused=True)
    compared = lab.compare(single, recorded(lambda: (train(data), train(data))))
    balanced(compared)
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("kernels", "fused")
    (row,) = [row for row in compared.changes if row.fused is not None]
    assert row.name.endswith("_fused_adamw_")
    assert (row.phase, row.status) == ("optimizer", "fused")
    assert row.after.calls == 6
    assert row.fused == (row.before.calls / 6, 1)


def test_torch_compile() -> None:
    pytest.importorskip("triton", "3.9")
    lab.enable("a100")
    x, bias = torch.rand(4096, 512, device="cuda"), torch.rand(512, device="cuda")

    def function(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x + bias).mul(2).tanh() + x

    compiled: Any = torch.compile(function)

    def four(called: Callable[[torch.Tensor], torch.Tensor]) -> None:
        for _ in range(4):
            called(x)
        torch.cuda.synchronize()

    compared = both(lambda: four(function), lambda: four(compiled))
    torch._dynamo.reset()
    named = {(cause.kind, cause.reason) for cause in compared.causes[:2]}
    assert named == {("launching", "fused"), ("kernels", "fused")}
    (row,) = compared.changes
    assert (row.fused, row.before.calls, row.after.calls) == ((5, 1), 20, 4)
    assert "4 launches of kernels instead of 20" in compared.sentence
    assert "arithmetic" not in compared.sentence  # a compiled kernel's FLOPs are counted in another way


def test_fewer_items() -> None:
    train = Training(256, compute="real")
    data = batches(6, 64, 256)
    compared = both(lambda: train(data, item=True), lambda: train(data))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("host waits", "waits")
    assert "the host waited 1 time instead of 6" in compared.sentence
    assert "loss.item()" in compared.sentence
    assert abs(cause.ns) > 0.8 * (compared.before_ns - compared.after_ns)


def test_fewer_items_where_the_gpu_is_slower_than_the_host() -> None:
    lab.enable("t4")
    a = torch.rand(800, 800, device="cuda")

    def program(read: bool) -> None:
        x = a
        for _ in range(6):
            x = (a @ x).div_(1000)
            if read:
                x.sum().item()
            else:
                x.sum()
        torch.cuda.synchronize()

    compared = both(lambda: program(True), lambda: program(False))
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("host waits", "waits")
    assert "x.sum().item()" in compared.sentence
    assert "launching" not in [one.kind for one in compared.causes if one.ns < -1000]  # the GPU waits for nothing else


def of_ranks(program: Callable[[int], Callable[[], object]]) -> lab.Trace:
    """What four ranks do in two steps, without what comes before."""
    trace = lab.record()

    def rank() -> None:
        dist.init_process_group("nccl")
        me = dist.get_rank()
        torch.cuda.set_device(me)
        step = program(me)
        for number in range(4):
            if number == 2:
                torch.cuda.synchronize()
                dist.barrier(device_ids=[me])
                if me == 0:
                    trace.__enter__()
                dist.barrier(device_ids=[me])
            step()
        torch.cuda.synchronize()
        dist.barrier(device_ids=[me])
        if me == 0:
            trace.__exit__(None, None, None)
        dist.destroy_process_group()

    lab.run_ranks(rank, 4)
    return trace


def data_parallel(rank: int, *, bucket_mb: int = 25, by_hand: bool = False) -> Callable[[], object]:
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    wrapped = model if by_hand else DistributedDataParallel(model, device_ids=[rank], bucket_cap_mb=bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.rand(512, 2048, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        wrapped(x).square().mean().backward()
        if by_hand:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()

    return step


def test_the_buckets_of_ddp() -> None:
    lab.enable("a100:4", compute="meta")
    one = of_ranks(lambda rank: data_parallel(rank, bucket_mb=1000))
    compared = lab.compare(one, of_ranks(data_parallel))
    balanced(compared)
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("collectives", "hidden")
    assert "12 collectives instead of 4" in compared.sentence
    hidden = [side.communication_ns - side.means["collectives"] for side in (compared.before, compared.after)]
    assert hidden[1] > 2 * hidden[0]
    assert "On the other hand, kernels ran for" in compared.sentence  # they share the card with NCCL's
    assert "beside communication" in compared.sentence


def test_ddp_instead_of_a_loop_over_the_gradients() -> None:
    lab.enable("a100:4", compute="meta")
    loop = of_ranks(lambda rank: data_parallel(rank, by_hand=True))
    compared = lab.compare(loop, of_ranks(data_parallel))
    balanced(compared)
    assert (most(compared).kind, most(compared).reason) == ("collectives", "hidden")
    assert "dist.all_reduce" in compared.sentence
    rows = {row.name: row for row in compared.changes}
    assert rows["nccl:all_reduce"].status == "fewer"
    assert len([row for row in compared.changes if row.name == "aten::linear"]) == 8  # DDP's wrapper is no difference


def test_copies_on_a_stream_of_their_own() -> None:
    lab.enable("a100", compute="meta")
    model = network(2048)
    data = batches(4, 8192, 2048)

    def plain() -> None:
        for batch in data:
            model(batch.to("cuda", non_blocking=True)).sum().backward()
        torch.cuda.synchronize()

    def prefetched() -> None:
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
        with torch.cuda.stream(side):
            coming = data[0].to("cuda", non_blocking=True)
        for number in range(len(data)):
            current.wait_stream(side)
            x = coming
            x.record_stream(current)
            if number + 1 < len(data):
                with torch.cuda.stream(side):
                    coming = data[number + 1].to("cuda", non_blocking=True)
            model(x).sum().backward()
        torch.cuda.synchronize()

    compared = both(plain, prefetched)
    cause = most(compared)
    assert (cause.kind, cause.reason) == ("copies", "hidden")
    assert cause.after_ns < 0.4 * cause.before_ns


def test_a_loader_that_is_faster() -> None:
    lab.enable("a100", compute="meta")
    model = network(256)

    def program(seconds: float) -> None:
        for _ in range(4):
            lab.host_work(seconds)
            model(torch.ones(64, 256, device="cuda")).sum().backward()
        torch.cuda.synchronize()

    compared = both(lambda: program(5e-3), lambda: program(1e-3))
    assert most(compared).kind == "host works"
    assert most(compared).ns == pytest.approx(-4 * 4e6, rel=0.01)
    assert "lab.host_work(seconds)" in compared.sentence


# -------------------------------------------- what cannot be compared directly


def test_another_card() -> None:
    traces = []
    for spec in ("a100", "t4"):
        train = Training(2048, spec=spec)
        data = batches(3, 2048, 2048)
        train(data)
        traces.append(recorded(lambda train=train, data=data: train(data)))
        lab.disable()
    compared = lab.compare(*traces)
    assert "on one Tesla T4 instead of one NVIDIA A100" in compared.sentence
    assert (most(compared).kind, most(compared).reason) == ("kernels", "card")
    assert compared.speedup < 1
    assert f"takes {1 / compared.speedup:.2f} times as long" in compared.sentence


def test_two_cards_instead_of_one() -> None:
    lab.enable("a100:2", compute="meta")
    data = torch.rand(2048, 1024).pin_memory()

    def on(devices: int) -> None:
        for device in range(devices):
            with torch.cuda.device(device):
                models[device](data[::devices].to(f"cuda:{device}", non_blocking=True)).sum().backward()
        for device in range(devices):
            torch.cuda.synchronize(device)

    models = []
    for device in range(2):
        with torch.cuda.device(device):
            models.append(network(1024))
    compared = both(lambda: on(1), lambda: on(2))
    assert "2 × NVIDIA A100-SXM4-80GB instead of one NVIDIA A100-SXM4-80GB" in compared.sentence
    assert "Times are per GPU" in compared.sentence
    assert [row[0] for row in compared.by_device().rows] == ["cuda:0", "cuda:1"]


def test_recordings_of_different_lengths_are_compared_per_step() -> None:
    train = Training(256)
    data = batches(5, 64, 256)
    compared = both(lambda: train(data[:3]), lambda: train(data))
    assert compared.per_step
    assert "5 steps instead of 3, so times are those of one step" in compared.sentence
    assert "is as fast as the first" in compared.sentence
    assert compared.speedup == pytest.approx(1, rel=0.01)
    assert [row for row in compared.changes if row.status not in ("same", "faster", "slower")] == []


def test_without_a_difference_no_cause_is_named() -> None:
    train = Training(256)
    data = batches(3, 64, 256)
    compared = both(lambda: train(data), lambda: train(data))
    assert compared.sentence.count(".") == 3  # two decimal points and the end
    assert compared.speedup == 1
