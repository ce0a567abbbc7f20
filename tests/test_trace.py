"""The classic experiments, as a lesson would make them: each asserts on what the simulated hardware did."""

from __future__ import annotations

import copy
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here

MS = 1e-3


def now() -> float:
    """The calling thread's simulated time, seconds."""
    return here.host.now / 1e9


@pytest.fixture
def a100() -> Any:
    lab.enable("a100:2")
    torch.zeros(1, device="cuda")
    yield
    lab.disable()


@pytest.fixture
def planned() -> Any:
    """The same machine without numbers: for products that would take the host long."""
    lab.enable("a100:2", compute="meta")
    torch.zeros(1, device="cuda")
    yield
    lab.disable()


# ------------------------------------------------------------ (a) launch-bound


def test_a_thousand_tiny_kernels_are_launch_bound_and_one_product_is_not(planned: Any) -> None:
    x = torch.ones(16, device="cuda")
    with lab.record() as tiny:
        for _ in range(1000):
            x += 1
    assert len(tiny.kernels) == 1000
    assert tiny.busy(0) < 0.5 * tiny.elapsed
    host = lab.machine().host
    each = host.ns(host_costs.IN_PLACE.forward) / 1e9 + host.launch_us * 1e-6
    assert tiny.host_elapsed == pytest.approx(1000 * each, rel=0.01)
    assert tiny.kernels[0].launched_ns - tiny.kernels[0].dispatched_ns <= each * 1e9  # Python came before

    a = torch.empty(8192, 8192, device="cuda")
    with lab.record() as large:
        a @ a
    assert large.busy(0) > 0.99 * (large.elapsed - large.host_elapsed)
    assert large.host_elapsed < 0.01 * large.elapsed


# ------------------------------------------------------------------- (b) timing


def test_without_synchronize_only_the_launch_is_timed(planned: Any) -> None:
    a = torch.empty(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    start = now()
    a @ a
    launched = now() - start
    torch.cuda.synchronize()
    waited = now() - start
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    a @ a
    end.record()
    end.synchronize()
    measured = begin.elapsed_time(end) * MS
    host = lab.machine().host
    assert launched == pytest.approx(host.ns(host_costs.PRODUCT.forward) / 1e9 + host.launch_us * 1e-6)
    assert waited == pytest.approx(measured, rel=0.01)
    assert measured > 100 * launched
    assert 2 * 8192**3 / measured == pytest.approx(0.90 * 19.5e12, rel=0.05)  # fp32 without TF32


# ------------------------------------------------------------------ (c) overlap


def pipeline(pinned: bool, non_blocking: bool, side: bool) -> lab.Trace:
    """Four batches, each copied, on a side stream or not, and multiplied three times."""
    weight = torch.empty(4096, 4096, dtype=torch.bfloat16, device="cuda")
    host = [torch.empty(4096, 4096, dtype=torch.bfloat16) for _ in range(4)]
    if pinned:
        host = [h.pin_memory() for h in host]
    copies = torch.cuda.Stream() if side else torch.cuda.current_stream()
    main = torch.cuda.current_stream()
    with lab.record() as trace:
        for batch in host:
            with torch.cuda.stream(copies):
                x = batch.to("cuda", non_blocking=non_blocking)
            main.wait_stream(copies)
            x.record_stream(main)
            for _ in range(3):
                x @ weight
        torch.cuda.synchronize()
    assert not trace.races
    return trace


def overlap(trace: lab.Trace) -> float:
    """Seconds in which a copy and a kernel ran at once."""
    return sum(
        max(0.0, min(copy.end, kernel.end) - max(copy.start, kernel.start))
        for copy in trace.transfers
        for kernel in trace.kernels
    )


def test_pinned_copies_on_a_side_stream_overlap_with_compute(planned: Any) -> None:
    overlapped = pipeline(pinned=True, non_blocking=True, side=True)
    assert overlap(overlapped) > 3 * MS
    assert {copy.pinned for copy in overlapped.transfers} == {True}
    assert overlapped.transfers[0].bandwidth == pytest.approx(25.7e9, rel=0.05)
    same_stream = pipeline(pinned=True, non_blocking=True, side=False)
    assert overlap(same_stream) == 0
    assert same_stream.elapsed > 1.4 * overlapped.elapsed
    pageable = pipeline(pinned=False, non_blocking=True, side=True)
    assert pageable.elapsed > 1.5 * overlapped.elapsed
    assert overlapped.host_elapsed - overlapped.waits[-1].duration < 1 * MS  # it only launched
    assert sum(wait.duration for wait in pageable.waits if wait.name.startswith("the copy")) > 9 * MS


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pageable_copy_holds_the_host_up_before_it_can_launch(planned: Any, pinned: bool) -> None:
    """PyTorch's pinned-memory tutorial: a copy on one stream, and then independent work on another."""
    a = torch.empty(4096, 4096, dtype=torch.bfloat16, device="cuda")
    batch = torch.empty(4096, 4096)
    if pinned:
        batch = batch.pin_memory()
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with lab.record() as trace:
        with torch.cuda.stream(side):
            batch.to("cuda", non_blocking=True)
        a @ a
    assert (overlap(trace) > 0.5 * MS) == pinned


# ------------------------------------------------------- (d) a sync in each step


def train(steps: int, read_loss: bool) -> lab.Trace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(256, 2048, device="cuda")
    with lab.record() as trace:
        for _ in range(steps):
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if read_loss:
                loss.item()
            lab.host_work(100e-6)  # the loader
        torch.cuda.synchronize()
    return trace


def test_reading_the_loss_in_each_step_serialises_host_and_device(a100: Any) -> None:
    free, read = train(5, read_loss=False), train(5, read_loss=True)
    assert read.elapsed > free.elapsed + 4 * 90e-6  # the loader's time is no longer hidden
    assert [wait.name for wait in free.waits] == ["torch.cuda.synchronize"]
    assert len(read.waits) == 5
    wait = read.waits[0]
    assert wait.name == "the copy to the host"
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "loss.item()" in text)
    assert wait.line == f"{__file__}:{line}"


# --------------------------------------------------------------- (e) formats


def seconds(card: str, dtype: torch.dtype, tf32: bool = False) -> float:
    lab.enable(card, compute="meta")
    torch.backends.cuda.matmul.allow_tf32 = tf32
    a = torch.empty(8192, 8192, dtype=dtype, device="cuda")
    with lab.record() as trace:
        a @ a
    lab.disable()
    return trace.kernels[-1].duration


def test_formats_are_faster_by_the_cards_ratio() -> None:
    try:
        reached = 0.74 / 0.90  # of the peak with tensor cores, and without
        full = seconds("a100", torch.float32)
        assert full / seconds("a100", torch.float16) == pytest.approx(reached * 312 / 19.5, rel=0.1)
        assert full / seconds("a100", torch.bfloat16) == pytest.approx(reached * 312 / 19.5, rel=0.1)
        assert full / seconds("a100", torch.float32, tf32=True) == pytest.approx(reached * 156 / 19.5, rel=0.1)
        volta = seconds("v100", torch.float32)
        assert volta == seconds("v100", torch.float32, tf32=True)  # a V100 has no TF32
        assert volta / seconds("v100", torch.float16) == pytest.approx(reached * 125 / 15.7, rel=0.1)
    finally:
        lab.disable()


# ------------------------------------------------------------------ (f) races


def lines_of(race: Any) -> tuple[str, str]:
    source = Path(__file__).read_text().splitlines()
    return tuple(source[int(at.rpartition(":")[2]) - 1].strip() for at in (race.first_line, race.second_line))


def test_a_wait_stream_left_out_is_a_race_that_names_both_lines(a100: Any) -> None:
    side = torch.cuda.Stream()
    with lab.record() as trace:
        x = torch.ones(1000, device="cuda")
        with torch.cuda.stream(side):
            y = x * 2
        z = y + 1
    del z
    assert [race.kind for race in trace.races] == ["read after write", "read after write"]
    assert lines_of(trace.races[0]) == ('x = torch.ones(1000, device="cuda")', "y = x * 2")
    assert lines_of(trace.races[1]) == ("y = x * 2", "z = y + 1")
    assert "nothing orders the two" in str(trace.races[0])
    number = trace.races[0].first_line.rpartition(":")[2]
    assert f"(tests/test_trace.py:{number}, " in str(trace.races[0]) or f"(test_trace.py:{number}, " in str(
        trace.races[0]
    )
    assert "races" in repr(trace)


def test_ordered_streams_have_no_race(a100: Any) -> None:
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    with lab.record() as trace:
        x = torch.ones(1000, device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            y = x * 2
        main.wait_stream(side)
        y += 1
        with torch.cuda.stream(side):
            z = torch.ones(10, device="cuda")
            event = side.record_event()
        event.synchronize()  # the host waits, and with it all that it launches later
        z.add_(1)
        other = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(other):
            z.add_(y[:10])
        copied = z.to("cuda:1")
    assert [str(race) for race in trace.races] == [  # z was written on `other`, copied on the default stream
        str(race) for race in trace.races if "aten::_to_copy" in str(race) or "aten::copy_" in str(race)
    ]
    assert len(trace.races) == 1
    del copied


def test_every_kind_of_race(a100: Any) -> None:
    side = torch.cuda.Stream()
    with lab.record() as trace:
        x = torch.ones(1000, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x + 1
        x.zero_()  # while the side stream may still read
        with torch.cuda.stream(side):
            x.fill_(3)
    assert [race.kind for race in trace.races] == ["write after read", "write after write"]


def test_memory_that_is_used_again_too_early(a100: Any) -> None:
    side = torch.cuda.Stream()

    def run(record: bool) -> lab.Trace:
        with lab.record() as trace:
            x = torch.ones(1000, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                x.mul(2)
            if record:
                x.record_stream(side)
            del x
            torch.zeros(1000, device="cuda")
        torch.cuda.synchronize()
        return trace

    assert [race.kind for race in run(record=False).races] == ["memory used again"]
    assert "record_stream" in str(run(record=False).races[0])
    assert run(record=True).races == []


USES: dict[str, Any] = {
    "item": lambda y: y[0].item(),
    "__float__": lambda y: float(y[0]),
    "__repr__": repr,
    "__format__": lambda y: f"{y[0]:.1f}",
    "tolist": lambda y: y.tolist(),
    "numpy": lambda y: y.numpy(),
    "__array__": np.asarray,
    "add": lambda y: y + 1,
    "stack": lambda y: torch.stack([torch.ones(3), y]),
    "relu": torch.nn.functional.relu,
    "__deepcopy__": copy.deepcopy,
}


@pytest.mark.parametrize(("name", "use"), USES.items(), ids=USES)
def test_a_host_that_reads_an_asynchronous_copy_before_it_is_done_is_a_race(a100: Any, name: str, use: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    with lab.record() as trace:
        y = x.to("cpu", non_blocking=True)
        use(y)
    (race,) = trace.races
    assert (race.kind, race.second, race.second_stream) == ("read after write", name, -1)
    assert lines_of(race)[0] == 'y = x.to("cpu", non_blocking=True)'
    assert "call torch.cuda.synchronize() first" in str(race)
    assert y.tolist() == [0.0, 1.0, 2.0]  # the simulation's own value is the right one
    assert type(y) is torch.Tensor


WAITS: dict[str, Any] = {
    "synchronize": lambda event, x: torch.cuda.synchronize(),
    "stream": lambda event, x: torch.cuda.current_stream().synchronize(),
    "event": lambda event, x: event.synchronize(),
    "item": lambda event, x: x.sum().item(),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_host_that_has_waited_for_the_copy_may_read_it(a100: Any, wait: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    host = torch.empty(3, pin_memory=True)
    event = torch.cuda.Event()
    with lab.record() as trace:
        y = x.to("cpu", non_blocking=True)
        host.copy_(x, non_blocking=True)
        event.record()
        wait(event, x)
        assert y.tolist() == host.tolist() == [0.0, 1.0, 2.0]
        assert type(y + host) is torch.Tensor
    assert trace.races == []


def test_an_event_before_the_copy_or_another_stream_is_not_enough(a100: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    event, other = torch.cuda.Event(), torch.cuda.Stream()
    with lab.record() as trace:
        event.record()
        y = x.to("cpu", non_blocking=True)
        event.synchronize()
        other.synchronize()
        y.sum()
    assert len(trace.races) == 1


def test_views_of_a_tensor_that_is_being_filled_are_watched_and_its_shape_is_free(a100: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    host = torch.empty(3, pin_memory=True)
    with lab.record() as trace:
        host.copy_(x, non_blocking=True)
        view = host[1:].detach()
        assert (view.shape, view.device, host.is_pinned(), len(host)) == ((2,), torch.device("cpu"), True, 3)
        torch.empty_like(host)
        host.to("cuda", non_blocking=True)
        host.copy_(x, non_blocking=True)
        assert trace.races == []
        view.zero_()
    assert [(race.kind, race.first, race.second) for race in trace.races] == [
        ("write after write", "aten::copy_", "zero_")
    ]


def test_blocking_and_pageable_copies_need_no_waiting(a100: Any) -> None:
    x = torch.arange(3.0, device="cuda")
    host = torch.empty(3)
    with lab.record() as trace:
        x.cpu().sum()
        host.copy_(x, non_blocking=True)
        host.sum()
    assert trace.races == []


# ------------------------------------------------------------- the trace itself


def test_what_a_kernel_record_says(a100: Any) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

    net = Net().cuda()
    with lab.record() as trace:
        net(torch.ones(4, 8, device="cuda")).sum().backward()
    product = next(k for k in trace.kernels if k.name == "aten::linear")
    assert product.module == "Net.body.0"
    assert product.flops == 2 * 4 * 8 * 16
    assert product.shapes == ((4, 8), (16, 8), (16,))
    assert product.line.startswith(__file__)
    assert (product.device, product.stream, product.backward) == (0, 0, False)
    relu = next(k for k in trace.kernels if k.name == "aten::threshold_backward")
    assert relu.backward
    assert relu.module == "Net.body.1"
    assert all(a.end <= b.start for a, b in zip(trace.kernels, trace.kernels[1:], strict=False))


def test_memory_in_a_trace(a100: Any) -> None:
    kept = torch.empty(2**20, device="cuda")
    with lab.record() as trace:
        x = torch.empty(2**20, device="cuda")
        y = torch.empty(2**19, device="cuda")
        del x
    assert [a.nbytes for a in trace.allocations] == [2**22, 2**21]
    assert [a.freed for a in trace.allocations] == [True, False]
    assert trace.peak_memory(0) == torch.cuda.max_memory_allocated() - 0
    assert trace.peak_memory(1) == 0
    del kept, y
    with pytest.raises(lab.FakeGpuError, match="no device 2"):
        trace.peak_memory(2)


def test_recordings_within_recordings(a100: Any) -> None:
    x = torch.ones(4, device="cuda")
    with lab.record() as outer:
        x + 1
        with lab.record() as inner:
            x * 2
        x - 3
    assert [k.name for k in outer.kernels] == ["aten::add", "aten::mul", "aten::sub"]
    assert [k.name for k in inner.kernels] == ["aten::mul"]


def test_totals_stay_exact_when_details_are_dropped(a100: Any) -> None:
    x = torch.ones(4, device="cuda")
    trace = lab.record()
    trace._recorder.limit = 10
    with trace:
        for _ in range(25):
            x + 1
    assert len(trace.kernels) == 10
    assert trace.dropped["kernels"] == 15
    assert trace.totals[0, "aten::add"].count == 25
    assert trace.totals[0, "aten::add"].ns == sum(25 * (k.end_ns - k.start_ns) for k in trace.kernels[:1])


def test_a_recording_ends_with_the_cell_that_raises(a100: Any) -> None:
    x = torch.ones(4, device="cuda")
    trace = lab.record()

    def cell() -> None:
        with trace:
            x + 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cell()
    x + 1
    assert len(trace.kernels) == 1


def test_host_work_must_be_a_time(a100: Any) -> None:
    start = now()
    lab.host_work(0.25)
    assert now() - start == pytest.approx(0.25)
    for wrong in (-1, float("nan")):
        with pytest.raises(lab.FakeGpuError, match="0 or more"):
            lab.host_work(wrong)


def test_record_needs_a_machine() -> None:
    lab.disable()
    with pytest.raises(lab.FakeGpuError, match="No simulated GPU"):
        lab.record()


# -------------------------------------------------------------------- threads


def test_a_thread_begins_when_it_is_started_and_join_waits_for_it(a100: Any) -> None:
    lab.host_work(1.0)
    seen = []

    def work() -> None:
        seen.append(now())
        lab.host_work(0.5)

    thread = threading.Thread(target=work)
    began = now()
    thread.start()
    lab.host_work(0.1)
    thread.join()
    assert seen == [began]
    assert now() == pytest.approx(began + 0.5)


def test_each_thread_has_its_own_current_stream(a100: Any) -> None:
    side = torch.cuda.Stream()
    ids = []
    with torch.cuda.stream(side):
        thread = threading.Thread(target=lambda: ids.append(torch.cuda.current_stream().stream_id))
        thread.start()
        thread.join()
        assert torch.cuda.current_stream() == side
    assert ids == [0]


# --------------------------------------------------------------- determinism

PROGRAM = """
import sys, torch
import fakegpu_lab as lab
torch.set_num_threads(int(sys.argv[1]))
lab.enable("a100:2")
torch.manual_seed(0)
nn = torch.nn
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
with lab.record() as trace:
    for _ in range(3):
        with torch.cuda.stream(side):
            x = torch.randn(16, 3, 8, 8).pin_memory().to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        loss = torch.nn.functional.dropout(model(x)).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
print(trace.elapsed, trace.kernels, trace.transfers, trace.allocations, trace.waits)
"""


@pytest.mark.long
def test_the_same_program_has_the_same_trace() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, threads], capture_output=True, text=True, check=True, timeout=300
        ).stdout
        for threads in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop()) > 10_000


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: lab.host_work("x"), r"host_work\('x'\): the seconds must be a number, 0 or more"),
        (lambda: lab.host_work(None), r"host_work\(None\): the seconds must be a number"),
        (lambda: lab.host_work(float("inf")), r"host_work\(inf\): the seconds must be a number"),
        (lambda: lab.host_work(-1), r"host_work\(-1\): the seconds must be a number, 0 or more"),
        (lambda: lab.record("x"), r"record\(limit='x'\): the number of records to keep must be a whole number"),
        (lambda: lab.record(-1), r"record\(limit=-1\): the number of records to keep must be a whole number"),
        (lambda: lab.advise(None), r"advise\(None\) needs a recording"),
    ],
)
def test_a_wrong_argument_is_one_sentence(machine, call, sentence) -> None:
    with pytest.raises(lab.FakeGpuError, match=sentence):
        call()


def test_a_recording_begins_once_and_ends_once(machine):
    with lab.record() as trace:
        torch.ones(2, device="cuda").sum().item()
    took = trace.elapsed
    torch.ones(2, device="cuda").sum().item()
    trace.__exit__(None, None, None)
    assert trace.elapsed == took
    with pytest.raises(lab.FakeGpuError, match="has ended"), trace:
        pass
