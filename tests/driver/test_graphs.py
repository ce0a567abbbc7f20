"""CUDA graphs: what is captured does not run, replays compute it on the same memory and are one launch."""

from __future__ import annotations

import re
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.hardware.machine import Machine

    Make = Callable[[], tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]]

pytestmark = pytest.mark.usefixtures("machine")


@pytest.fixture(autouse=True)
def _default_stream(machine: Machine) -> Iterator[None]:
    """torch.cuda.graph leaves its stream current where capture_end raises."""
    yield
    torch.cuda.set_stream(torch.cuda.default_stream())


NOTHING_TO_REPLAY = (
    "capture_end() must have been called before calling instantiate"  # Python instantiates first
    if TORCH_VERSION >= (2, 15)
    else "Called CUDAGraph::replay without a preceding successful capture."
)


def captured(work: Callable[[], object], **options: Any) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        work()
    return graph


def mlp() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    """The network of torch's "Whole-network capture"."""
    model = nn.Sequential(nn.Linear(32, 16), nn.Dropout(0.2), nn.Linear(16, 8), nn.Dropout(0.1)).cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(8, 32, device="cuda")


def convolutional() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).cuda()
    return model, torch.optim.Adam(model.parameters(), capturable=True), torch.randn(4, 3, 8, 8, device="cuda")


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 8, 2, dropout=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def recurrent() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = Recurrent().cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.randn(5, 4, 8, device="cuda")


class Attention(nn.Module):
    """Positions made in the capture, and dropout inside attention, whose seed is kept on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Embedding(16, 32)
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.position(torch.arange(x.shape[1], device=x.device))
        q, k, v = (part.view(2, 16, 2, 16).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)


def attention() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = Attention().cuda()
    return (
        model,
        torch.optim.AdamW(model.parameters(), capturable=True, fused=True),
        torch.randn(2, 16, 32, device="cuda"),
    )


def trained(make: Make, graphed: bool, dtype: torch.dtype | None = None) -> tuple[list[float], list[torch.Tensor], int]:
    """Losses, weights and the generator's offset after five steps."""
    torch.manual_seed(0)
    model, optimizer, static = make()

    def step() -> torch.Tensor:
        with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None, cache_enabled=False):
            loss = model(static).float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    if graphed:
        before = [value.clone() for value in model.state_dict().values()]
        with torch.cuda.graph(graph):
            loss = step()
        after = model.state_dict().values()
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))  # nothing ran
        assert loss.item() == 0
    losses = []
    for _ in range(5):
        static.copy_(torch.randn(static.shape, device="cuda"))
        if graphed:
            graph.replay()
        else:
            optimizer.zero_grad(set_to_none=True)
            loss = step()
        losses.append(loss.item())
    weights = [value.cpu() for value in model.state_dict().values()]
    return losses, weights, torch.cuda.default_generators[0].get_offset()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("make", [mlp, convolutional, recurrent, attention])
def test_a_whole_step_is_bitwise_that_of_eager(make: Make, dtype: torch.dtype | None) -> None:
    losses, weights, offset = trained(make, graphed=True, dtype=dtype)
    eager_losses, eager_weights, eager_offset = trained(make, graphed=False, dtype=dtype)
    assert losses == eager_losses
    assert len(set(losses)) == 5
    assert all(torch.equal(a, b) for a, b in zip(weights, eager_weights, strict=True))
    assert offset == eager_offset


def test_gradients_scaled_as_in_torchs_example() -> None:
    """Partial capture: forward and backward with autocast in the graph, the scaler's step outside."""

    def run(graphed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(8, 4).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cuda")
        static = torch.randn(4, 8, device="cuda")
        graph = torch.cuda.CUDAGraph()

        def step() -> None:
            with torch.autocast("cuda", cache_enabled=False):
                loss = model(static).float().square().mean()
            scaler.scale(loss).backward()

        with torch.cuda.stream(torch.cuda.Stream()):
            step()
        optimizer.zero_grad(set_to_none=True)
        if graphed:
            with torch.cuda.graph(graph):
                step()
        for i in range(4):
            static.fill_(float("inf") if i == 1 else i)
            if graphed:
                graph.replay()
            else:
                optimizer.zero_grad(set_to_none=True)
                step()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() < 2.0**16  # a step was skipped
        return [torch.tensor(scaler.get_scale()), *(p.detach().cpu() for p in model.parameters())]

    for a, b in zip(run(True), run(False), strict=True):
        assert torch.equal(a, b)


def test_dropout_differs_between_replays_and_follows_the_offset() -> None:
    x = torch.ones(64, device="cuda")
    out: list[torch.Tensor] = []
    graph = captured(lambda: out.append(F.dropout(x) + F.dropout(x)))
    generator = torch.cuda.default_generators[0]
    torch.cuda.manual_seed(7)
    graph.replay()
    first, offset = out[0].clone(), generator.get_offset()
    graph.replay()
    assert not torch.equal(first, out[0])
    assert generator.get_offset() == 2 * offset
    torch.cuda.manual_seed(7)
    assert torch.equal(first, F.dropout(x) + F.dropout(x))
    assert generator.get_offset() == offset


@pytest.mark.skipif(TORCH_VERSION < (2, 13), reason="generators find their captures by themselves since 2.13")
def test_a_generator_of_ones_own() -> None:
    generator = torch.Generator("cuda").manual_seed(3)
    out = torch.empty(4, device="cuda")
    graph = captured(lambda: out.normal_(generator=generator))
    assert generator.get_offset() == 0
    graph.replay()
    assert torch.equal(out, torch.empty(4, device="cuda").normal_(generator=generator.manual_seed(3)))


def test_static_memory_views_and_host_values() -> None:
    x = torch.zeros(6, device="cuda")
    row = x.view(2, 3)[1]
    factor = torch.tensor(2.0)  # on the host: its value of now goes into the kernel
    out: list[torch.Tensor] = []

    def work() -> None:
        made = torch.zeros(3, device="cuda")
        made += row * factor
        out.append(made.unsqueeze(0))

    graph = captured(work)
    factor.fill_(100)
    for value in (1.0, 5.0):
        x.fill_(value)
        graph.replay()
        assert out[0].tolist() == [[2 * value] * 3]
    assert x.tolist() == [5.0] * 6


def test_pinned_memory_is_read_at_the_replay() -> None:
    x, host, back = torch.zeros(4, device="cuda"), torch.zeros(4).pin_memory(), torch.zeros(4).pin_memory()

    def work() -> None:
        x.copy_(host, non_blocking=True)
        back.copy_(x + 1, non_blocking=True)

    graph = captured(work)
    host.fill_(7)
    with lab.record() as trace:
        graph.replay()
    torch.cuda.synchronize()
    assert back.tolist() == [8.0] * 4
    assert [copy.kind for copy in trace.transfers] == ["h2d", "d2h"]
    with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"):
        captured(lambda: (x.add_(1), x.copy_(torch.ones(4), non_blocking=True)))


def test_inference_mode_and_another_stream() -> None:
    x = torch.ones(4, 4, device="cuda")
    out: list[torch.Tensor] = []
    with torch.inference_mode():
        graph = captured(lambda: out.append(F.linear(x, x).relu_()))
    x.fill_(2)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        graph.replay()
    side.synchronize()
    assert out[0][0].tolist() == [16.0] * 4


def test_a_graph_in_a_graph() -> None:
    x = torch.zeros(2, device="cuda")
    inner = captured(lambda: x.add_(1))
    outer = captured(lambda: (inner.replay(), x.mul_(10), inner.replay()))
    outer.replay()
    assert x.tolist() == [11.0, 11.0]


# ------------------------------------------------------------------ partial capture


def test_graphed_callables_have_eagers_gradients() -> None:
    def gradients(graphed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        body: Any = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda()
        head: Any = nn.Linear(4, 2).cuda()
        x = torch.randn(3, 8, device="cuda")
        if graphed:
            samples = ((torch.randn(3, 8, device="cuda"),), (torch.randn(3, 4, device="cuda", requires_grad=True),))
            body, head = torch.cuda.make_graphed_callables((body, head), samples)
        for _ in range(2):
            body.zero_grad()
            head.zero_grad()
            head(body(x)).square().sum().backward()
            x = x * 2
        return [p.grad.cpu() for p in (*body.parameters(), *head.parameters())]

    for a, b in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(a, b)


def test_graphed_callables_refuse_hooks_and_unused_inputs() -> None:
    hooked = nn.Linear(2, 2).cuda()
    hooked.register_forward_hook(lambda *_: None)
    x = torch.ones(1, 2, device="cuda", requires_grad=True)
    with pytest.raises(AssertionError, match="Modules must not have hooks registered"):
        torch.cuda.make_graphed_callables(hooked, (x,))
    with pytest.raises(RuntimeError, match="appears to not have been used"):
        torch.cuda.make_graphed_callables(lambda a, b: a * 2, (x, x.detach().clone().requires_grad_()))


# --------------------------------------------------------------------------- memory


def test_memory_is_the_graphs_until_it_is_dropped(machine: Machine) -> None:
    torch.cuda.empty_cache()
    before, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    out: list[torch.Tensor] = []

    def work() -> None:
        first = torch.zeros(1 << 20, device="cuda")
        second = first + 1
        del first
        out.append(second * 2)  # in the place of `first`

    graph = captured(work)
    mib = 2**20
    assert torch.cuda.memory_allocated() - before == 4 * mib
    assert torch.cuda.memory_reserved() - reserved == 20 * mib
    segments = torch.cuda.memory_snapshot()
    assert [s["total_size"] for s in segments if s["segment_pool_id"] == graph.pool()] == [20 * mib]
    address, allocations = out[0].data_ptr(), torch.cuda.memory_stats()["allocation.all.allocated"]
    graph.replay()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == allocations
    assert (out[0].data_ptr(), out[0][0].item()) == (address, 2)
    out.clear()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() - reserved == 20 * mib
    graph.reset()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == reserved
    with pytest.raises(RuntimeError, match=re.escape(NOTHING_TO_REPLAY)):
        graph.replay()


def test_graphs_share_a_pool() -> None:
    x = torch.ones(1 << 20, device="cuda")
    torch.cuda.synchronize()
    kept: list[torch.Tensor] = []
    first = captured(lambda: x + 1)
    reserved = torch.cuda.memory_reserved()
    second = captured(lambda: kept.append(x + 2), pool=first.pool())
    assert torch.cuda.memory_reserved() == reserved
    assert second.pool() == first.pool()
    assert first.pool()[1] == 0
    handle = torch.cuda.graph_pool_handle()
    third = captured(lambda: kept.append(x + 3), pool=handle)
    assert third.pool() == handle == (0, 1)
    assert torch.cuda.memory_reserved() > reserved
    del first
    second.replay()
    assert kept[0][0].item() == 3


def test_graphs_of_a_pool_overwrite_each_other() -> None:
    """The first graph's intermediate is where the second graph's result is: fine in the order of the captures only."""
    x = torch.ones(1 << 20, device="cuda")
    kept: list[torch.Tensor] = []
    first = captured(lambda: kept.append((x + 1).sum()))
    second = captured(lambda: kept.append(x + 10), pool=first.pool())
    storages = [one.untyped_storage() for one in kept]  # as Inductor's CUDA graphs do
    assert {one.device.type for one in storages} == {"cuda"}
    first.replay()
    second.replay()
    total, out = kept
    assert (total.item(), out[0].item()) == (2 << 20, 11)
    first.replay()  # its x + 1 has been freed, and now it is `out`
    assert (out == 2).all()
    second.replay()
    assert (total.item(), out[0].item()) == (2 << 20, 11)


def test_graphs_of_different_pools_keep_their_values() -> None:
    x = torch.ones(1 << 20, device="cuda")
    kept: list[torch.Tensor] = []
    first = captured(lambda: kept.append((x + 1).sum()))
    second = captured(lambda: kept.append(x + 10))
    second.replay()
    first.replay()
    assert kept[1][0].item() == 11


def test_a_result_that_was_deleted_is_overwritten_where_a_graph_still_reads_it() -> None:
    """As on a card, the second graph reads at the first one's address, where the third one writes."""
    x = torch.ones(1 << 20, device="cuda")
    kept: list[torch.Tensor] = []
    first = captured(lambda: kept.append(x + 1))
    second = captured(lambda: kept.append(kept[0][:4] * 2), pool=first.pool())
    del kept[0]
    third = captured(lambda: kept.append(x + 100), pool=first.pool())
    first.replay()
    second.replay()
    assert kept[0].tolist() == [4] * 4
    third.replay()
    second.replay()
    assert kept[0].tolist() == [202] * 4


# --------------------------------------------------------------------------- errors

UNSUPPORTED = "operation not permitted when stream is capturing"


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.sum().item(),
        lambda x: bool(x.any()),
        lambda x: x.nonzero(),
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.cuda.current_stream().synchronize(),
        lambda x: torch.cuda.current_stream().query(),
        lambda x: torch.cuda.graph(torch.cuda.CUDAGraph()).__enter__(),
    ],
    ids=["item", "bool", "nonzero", "synchronize", "stream", "query", "nested"],
)
def test_what_waits_spoils_the_capture(call: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture") as spoilt:
        captured(lambda: call(x))
    assert f"CUDA error: {UNSUPPORTED}\nSearch for `cudaErrorStreamCaptureUnsupported'" in str(spoilt.value.__context__)
    torch.cuda.set_stream(torch.cuda.default_stream())
    assert x.sum().item() == 4  # and that is over


def test_a_spoilt_capture_takes_no_more_kernels() -> None:
    x = torch.ones(4, device="cuda")

    def work() -> None:
        with suppress(RuntimeError):
            x.sum().item()
        x.add_(1)

    with pytest.raises(RuntimeError, match="previous error during capture"):
        captured(work)
    assert x.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda g: g.replay(), NOTHING_TO_REPLAY),
        (lambda g: g.pool(), "Called CUDAGraph::pool() without a preceding successful capture."),
        (lambda g: g.capture_end(), "capture_end() called before capture_begin()."),
        (lambda g: g.instantiate(), "capture_end() must have been called before calling instantiate"),
        (
            lambda g: g.capture_begin(),
            (
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
                "on the default stream.)"
            ),
        ),
        (
            lambda g: g.capture_begin(capture_error_mode="loose"),
            "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got loose",
        ),
    ],
)
def test_calls_at_the_wrong_time(call: Callable[[Any], object], says: str) -> None:
    with pytest.raises(RuntimeError) as error:
        call(torch.cuda.CUDAGraph())
    assert str(error.value) == says


def test_a_graph_is_captured_once_and_on_one_stream() -> None:
    x = torch.zeros(1, device="cuda")
    graph = captured(lambda: x.add_(1))
    with pytest.raises(RuntimeError, match="This CUDAGraph instance already owns a captured graph"):
        graph.capture_begin()
    other = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="Capture must end on the same stream it began on"), torch.cuda.graph(other):
        torch.cuda.set_stream(torch.cuda.default_stream())
    other.reset()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        captured(lambda: None)
    assert "The CUDA Graph is empty." in str(said[0].message)


def test_generators_during_a_capture() -> None:
    seed = torch.cuda.initial_seed()
    captured(lambda: (torch.zeros(1, device="cuda"), torch.cuda.manual_seed(seed)) if TORCH_VERSION >= (2, 13) else 0)
    with pytest.raises(RuntimeError, match=r"during|only if new seed is the same"):
        captured(lambda: (torch.zeros(1, device="cuda"), torch.cuda.manual_seed(seed + 1)))
    with pytest.raises(RuntimeError, match="Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"):
        captured(lambda: (torch.zeros(1, device="cuda"), torch.cuda.get_rng_state()))


def test_forked_streams_must_come_back() -> None:
    x, side = torch.ones(2, device="cuda"), torch.cuda.Stream()
    event = torch.cuda.Event()

    def fork() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            assert torch.cuda.is_current_stream_capturing()
            x.mul_(2)
            event.record()

    def fork_and_join() -> None:
        fork()
        torch.cuda.current_stream().wait_stream(side)
        x.add_(1)

    assert not torch.cuda.is_current_stream_capturing()
    captured(fork_and_join).replay()
    assert x.tolist() == [3.0, 3.0]
    for ask in (event.synchronize, event.query, event.wait):
        with pytest.raises(RuntimeError, match="operation not permitted on an event last recorded in a capturing"):
            ask()
    with pytest.raises(RuntimeError, match="capturing stream has unjoined work"):
        captured(fork)
    torch.cuda.set_stream(torch.cuda.default_stream())
    event.record()
    with pytest.raises(RuntimeError) as error:
        captured(event.wait)
    assert "dependency created on uncaptured work in another stream" in str(error.value.__context__)


def test_optimizers_ask_whether_they_may_be_captured() -> None:
    weight = nn.Parameter(torch.ones(2, device="cuda"))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones(2, device="cuda")
    optimizer.step()
    with pytest.raises(RuntimeError, match="param_groups' capturable is False"):
        captured(lambda: (weight.add(1), optimizer.step()))


# ----------------------------------------------------------------------------- time


def test_a_thousand_tiny_kernels_are_no_longer_launch_bound(machine: Machine) -> None:
    x = torch.zeros(8, device="cuda")

    def work() -> None:
        for _ in range(1000):
            x.add_(1)

    with lab.record() as eager:
        work()
        torch.cuda.synchronize()
    graph = captured(work)
    kernels, now = machine.devices[0].ledger.kernels, x[0].item()
    with lab.record() as graphed:
        graph.replay()
        torch.cuda.synchronize()
    assert machine.devices[0].ledger.kernels - kernels == len(graphed.kernels) == 1000
    assert x[0].item() == now + 1000
    assert eager.busy(0) == graphed.busy(0)
    assert eager.busy(0) < 0.5 * eager.elapsed
    assert graphed.busy(0) > 0.95 * graphed.elapsed
    first, *_, last = graphed.kernels
    assert last.end_ns - first.start_ns == sum(k.end_ns - k.start_ns for k in graphed.kernels)  # no gaps
    assert {k.launched_ns for k in graphed.kernels} == {first.launched_ns}
    assert first.name == "aten::add_"
    assert "test_graphs.py" in first.line


def test_capturing_takes_no_time_on_the_card(machine: Machine) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    torch.cuda.synchronize()
    with lab.record() as trace:
        graph = captured(lambda: x.add_(1))
    assert trace.kernels == []
    with lab.record() as trace:
        model = nn.Sequential(nn.Linear(2, 2)).cuda()
        other = captured(lambda: model(torch.zeros(1, 2, device="cuda")))
        graph.replay()
        other.replay()
    names = [("aten::add_", ""), ("aten::zero_", ""), ("aten::linear", "Sequential.0")]
    assert [(k.name, k.module) for k in trace.kernels[-3:]] == names


def test_without_values() -> None:
    machine = lab.enable("a100", memory="4GiB", compute="meta")
    model, optimizer, static = mlp()

    def step() -> None:
        model(static).square().mean().backward()
        optimizer.step()

    step()
    optimizer.zero_grad(set_to_none=True)
    graph = captured(step)
    kernels, offset = machine.devices[0].ledger.kernels, torch.cuda.default_generators[0].get_offset()
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert machine.devices[0].ledger.kernels > kernels + 20
    assert torch.cuda.default_generators[0].get_offset() == offset + 16


def test_a_capture_does_not_outlive_its_machine() -> None:
    x = torch.zeros(2, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_stream(torch.cuda.Stream())
    graph.capture_begin()
    x.add_(1)
    lab.disable()
    lab.enable("a100", memory="4GiB")
    assert torch.ones(2, device="cuda").sum().item() == 2
    assert not torch.cuda.is_current_stream_capturing()


def test_in_a_cuda_build_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the base is a class of C++'s, which makes its objects itself."""
    lab.disable()
    theirs = torch.cuda.CUDAGraph
    monkeypatch.setattr(torch._C, "_CUDAGraph", torch._C.DispatchKeySet)
    lab.enable("a100")
    x = torch.zeros(3, device="cuda")
    results = []
    graph = captured(lambda: results.append(x + 1))
    x.fill_(5)
    graph.replay()
    assert results[0].tolist() == [6, 6, 6]
    assert type(graph) is torch.cuda.CUDAGraph is torch.cuda.graphs.CUDAGraph
    assert isinstance(theirs(), torch.cuda.CUDAGraph)  # for `from torch.cuda import CUDAGraph`
    assert graph.pools() == [graph.pool()]
    lab.disable()
    assert torch.cuda.CUDAGraph is torch.cuda.graphs.CUDAGraph is theirs
    lab.enable("a100")  # for the fixtures


def test_a_graph_reads_what_the_one_before_it_in_their_pool_has_written() -> None:
    def twice_and_two(x: torch.Tensor) -> torch.Tensor:
        a, b = x.clone() + 1, x.clone() + 1
        return a + b

    kept: list[torch.Tensor] = [torch.ones(1000, device="cuda")]

    def five_times() -> None:
        for _ in range(5):
            kept[0] = twice_and_two(kept[0])

    first = captured(five_times)
    second = captured(five_times, pool=first.pool())
    first.replay()
    second.replay()
    assert kept[0].unique().item() == 3 * 2**10 - 2


def test_a_captured_draw_keeps_the_state_that_its_generator_had() -> None:
    torch.cuda.init()
    torch.cuda.manual_seed(0)
    generator = torch.cuda.default_generators[0]
    old, new = generator.graphsafe_get_state(), generator.clone_state()
    expected = torch.rand(5, device="cuda", generator=new.clone_state())
    kept: list[torch.Tensor] = []

    def draw() -> None:
        for state in (new, old, old):
            generator.graphsafe_set_state(state)
            kept.append(torch.rand(5, device="cuda", generator=generator))

    captured(draw).replay()
    assert torch.equal(kept[0], expected)
    assert torch.equal(kept[1], expected)
    assert not torch.equal(kept[2], expected)
    assert (new.get_offset(), old.get_offset()) == (4, 8)
