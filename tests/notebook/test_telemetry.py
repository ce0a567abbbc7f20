"""Telemetry: the schema, what a reader is told and when, and what it costs if nobody listens."""

from __future__ import annotations

import gc
import itertools
import re
import threading
import time
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.memory_report import live_categories
from fakegpu_lab.driver.memory_report.memory_curve import ROWS, Curve, kept
from fakegpu_lab.formatting import units
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.notebook.telemetry import messages as telemetry
from fakegpu_lab.notebook.telemetry import publisher
from fakegpu_lab.notebook.telemetry.publisher import UNSEEN, Outlet, Publisher
from fakegpu_lab.notebook.telemetry.source import NEW_ROWS, STEPS, Reader, Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.notebook.telemetry.messages import Telemetry


@pytest.fixture
def source() -> Iterator[Source]:
    gc.collect()
    made = Source()
    yield made
    made.close()
    lab.disable()


def train(steps: int = 3) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(32, 64).to("cuda")).sum().backward()
        optimizer.step()
        model[0].weight.detach().to("cuda:1")


def told(reader: Reader) -> Telemetry:
    reader.source.poll()
    message = reader.message()
    assert message is not None
    return message


def test_the_committed_schema_is_that_of_the_models() -> None:
    """After a change of the models: python -m fakegpu_lab.notebook.telemetry.messages > …/telemetry.schema.json."""
    assert telemetry.schema() == telemetry.make_schema()
    assert f"version {telemetry.VERSION}" in telemetry.schema()["title"]


def test_the_allocations_of_the_last_step_add_up_to_its_peak(source: Source) -> None:
    reader = Reader(source)
    source.open()
    lab.enable("a100:2")
    source.begin()
    train()
    source.end()
    message = told(reader)
    assert message.allocations is not None
    (first,) = message.allocations  # the other GPU had no tensors until the step was over
    assert first.slot == 0
    assert first.title == message.timeline.title.split(":")[0]  # type: ignore[union-attr]
    column = first.columns.index(first.peak_step)
    at_peak = [sum(nbytes for place, nbytes in band[-1] if place <= column) for band in first.bands]
    assert sum(at_peak) == first.peak == sum(group[0] for group in first.groups)
    grown = next(band for band in first.bands if band[4] == "aten::gelu")
    assert grown[:4] == ("activations", 1, 32 * 64 * 4, "32×64 float32")
    assert "model(torch.ones(32, 64)" in first.lines[grown[-2][0]]
    assert [name for name, *_ in first.phases] == ["forward", "backward", "optimizer"]
    assert reader.message() is None, "they are sent once"
    assert message.timeline is not None
    *named, (device, name, kernels, ns) = message.timeline.top
    totals = source.windows.trace.totals.values()  # type: ignore[union-attr]
    assert len(named) == 8
    assert (device, name) == (-1, f"{len(totals) - 8} more")
    assert sum(one[2] for one in named) + kernels == sum(total.count for total in totals)
    assert sum(one[3] for one in named) + ns == sum(total.ns for total in totals)


def test_a_recording_beside_a_panel_knows_when_older_memory_is_freed(source: Source) -> None:
    source.open()
    lab.enable("a100")
    source.begin()
    source.end()  # what is taken now is in no window
    weights = torch.ones(2000, device="cuda", requires_grad=True)
    older = weights * 2
    with lab.record() as trace:
        del older
        torch.ones(500, device="cuda")
    assert [(block.block_bytes, block.freed) for block in trace.held_before] == [(8192, False), (8192, True)]
    assert trace.memory().peak == 2 * 8192
    assert trace.memory().heights[-1] == 8192
    assert trace.held_before[1].category == "activations", "as the panel knows"
    del weights


def test_a_gpu_that_is_behind_the_host_is_not_shown_as_idle(source: Source) -> None:
    source.open()
    lab.enable("a100", compute="meta")
    x = torch.ones(8192, 8192, device="cuda")
    for _ in range(20):
        y = x @ x
    source.begin()
    y += 1
    source.end()
    timeline = told(Reader(source)).timeline
    assert timeline is not None
    stream = next(lane for lane in timeline.lanes if "stream 0" in lane.label)
    (begin, end, kind, _), (start, *_) = stream.bars
    assert (begin, kind) == (timeline.began_ns, "earlier work")
    assert end == start
    assert timeline.free_ns == end, "from then on the time is that of what is shown"
    assert re.search(
        r"cuda:0 busy .* \((9\d\.\d|100)%\); the host began .* before that, while the GPU still did earlier work$",
        timeline.title,
    )
    assert timeline.title.startswith(f"The last cell: {units.duration(timeline.ended_ns - end)} of simulated time")
    for _ in range(20):
        y = x @ x
    source.begin()
    torch.cuda.synchronize()  # for earlier work, before the time that is shown
    y += 1
    source.end()
    assert source.windows is not None
    assert [wait.name for wait in source.windows.trace.waits] == ["torch.cuda.synchronize"]  # type: ignore[union-attr]
    assert "the host waited" not in source.windows.timeline.title  # type: ignore[union-attr]


def test_replays_of_a_graph_take_the_place_of_the_last_step(source: Source) -> None:
    """They have no optimizer's step: the panel would advise a CUDA graph of the steps that became one."""
    reader = Reader(source)
    source.open()
    lab.enable("a100:2", compute="meta")
    source.begin()
    train()
    source.end()
    timeline = told(reader).timeline
    assert timeline is not None
    assert timeline.title.startswith("Step ")
    x = torch.ones(64, 64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(30):
            x = x + 1
    for work, title in ((lambda: x + 1, "Step "), (graph.replay, "After the last step")):
        source.begin()
        for _ in range(5):
            work()
        torch.cuda.synchronize()
        source.end()
        assert source.windows is not None
        assert source.windows.timeline is not None
        assert source.windows.timeline.title.startswith(title)
    assert not source.advice


@pytest.mark.long
def test_the_allocations_have_a_bounded_size(source: Source) -> None:
    reader = Reader(source)
    source.open()
    lab.enable("a100", compute="meta")
    source.begin()
    kept = [torch.ones(1000 + place, device="cuda") + 1 for place in range(900)]
    source.end()
    message = told(reader)
    assert message.allocations is not None
    (found,) = message.allocations
    assert found.steps == len(kept) * 2 + 900, "each result, and a summand that is freed"
    assert len(found.columns) < 500
    assert sum(band[1] for band in found.bands) >= 900
    assert len(found.bands) < 180
    assert len(found.model_dump_json()) < 60_000
    assert sum(group[0] for group in found.groups) == found.peak


def test_messages_obey_the_schema(source: Source) -> None:
    reader = Reader(source)
    source.open()
    schema = telemetry.schema()["telemetry"]
    messages = [told(reader)]
    lab.enable("a100:2", memory="1GiB")
    source.begin()
    train()
    source.end(torch.OutOfMemoryError("CUDA out of memory. GPU 1 has a total capacity of 1 GiB"))
    messages += [told(reader)]
    lab.disable()
    messages += [told(reader)]
    for message in messages:
        jsonschema.validate(message.model_dump(mode="json"), schema)
    assert [message.enabled for message in messages] == [False, True, False]
    assert "%fakegpu" in messages[0].note
    assert messages[1].error is not None
    assert messages[1].error.device == 1


def test_state_first_then_what_is_new(source: Source) -> None:
    lab.enable("a100:2", memory="1GiB")
    source.open()
    reader = Reader(source)
    first = told(reader)
    assert (first.kind, first.seq, len(first.devices)) == ("state", 1, 2)
    source.poll()
    assert reader.message() is None, "nothing has happened"
    source.begin()
    train()
    source.end()
    update = told(reader)
    assert (update.kind, update.seq, update.epoch) == ("update", 2, first.epoch)
    assert [number for _, number in update.steps] == [1, 2, 3]
    assert {device.slot for device in update.devices} == {0, 1}
    assert update.devices[0].counters.p2p_sent_to == {1: 3 * 64 * 64 * 4}
    assert update.timeline is not None
    assert any(bar[2] == "matmul" for lane in update.timeline.lanes for bar in lane.bars)
    assert 0 < update.utilisation[0] <= 1
    row = dict(zip(update.columns, update.history[0][-1], strict=True))
    assert sum(row[name] for name in update.columns[1:8]) == update.devices[0].memory.allocated
    torch.ones(5, device="cuda:1")
    after = told(reader)
    assert [device.slot for device in after.devices] == [1], "only what changed"
    assert after.timeline is None
    lab.reset()
    anew = told(reader)
    assert (anew.kind, anew.epoch) == ("state", first.epoch + 1)
    assert anew.steps == ()


def test_what_was_queued_counts_when_it_runs(source: Source) -> None:
    """Polls see a queue that is far ahead, and then a host that has waited for it: the GPU was busy in between."""
    source.open()
    lab.enable("t4", compute="meta")
    source.begin()
    x = torch.ones(2048, 2048, device="cuda")
    for _ in range(2):
        for _ in range(50):
            x @ x
        source.poll()
        queued = source.utilisation[0]
        torch.cuda.synchronize()
        source.poll()
        assert min(queued, source.utilisation[0]) > 0.9


def test_a_program_sees_its_memory_by_category_as_it_goes(source: Source) -> None:
    """At every look, all through the steps: the categories add up, and each is seen."""
    lab.enable("a100", memory="1GiB")
    source.open()
    watch = source._watch
    assert watch is not None
    model = nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.Dropout(), nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    seen: set[str] = set()

    def look(*_: object) -> None:
        watch.look()
        watch.take()
        last = dict(zip(NAMES, watch.curves[0].rows[-1][1:], strict=False))
        assert sum(last.values()) == torch.cuda.memory_allocated()
        seen.update(name for name, value in last.items() if value)
        assert last["other"] <= 512  # the one from which backward starts

    for hook in (model[1].register_forward_hook, model[1].register_full_backward_hook):
        hook(look)
    for _ in range(2):
        batch = torch.ones(64, 256).to("cuda")
        look()
        loss = model(batch).sum()
        look()
        loss.backward()
        look()
        optimizer.step()
        optimizer.zero_grad()
        look()
    assert seen - {"other"} == {"parameters", "gradients", "optimizer_state", "activations", "inputs", "workspace"}


def test_a_cell_s_advice_is_told(source: Source) -> None:
    lab.enable("a100:2", memory="1GiB")
    source.open()
    reader = Reader(source)
    told(reader)
    source.begin()
    x = torch.ones(100, device="cuda")
    for _ in range(20):
        x.sum().item()
    source.end()
    advice = told(reader).advice
    assert advice
    assert any("test_telemetry.py" in one.line for one in advice)


def test_watching_is_undone(source: Source) -> None:
    from torch.optim import optimizer

    from fakegpu_lab.driver.base.tensor import FakeCudaTensor
    from fakegpu_lab.driver.dispatch import dispatcher

    lab.enable("a100")
    source.open()
    assert FakeCudaTensor.__torch_dispatch__ is not dispatcher.run
    source.close()
    assert FakeCudaTensor.__torch_dispatch__ is dispatcher.run
    source.open()
    lab.disable()
    assert FakeCudaTensor.__torch_dispatch__ is dispatcher.run
    assert optimizer._global_optimizer_post_hooks == {}


def test_the_first_looks_of_a_cell_are_close_together(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look takes 1 ms here: twenty of them may be eager."""
    lab.enable("a100")
    watch = live_categories.Watch(lab.machine())
    ticks = itertools.count()
    monkeypatch.setattr(live_categories, "thread_time", lambda: next(ticks) / 1000)

    def pauses() -> list[float]:
        found = []
        for _ in range(25):
            watch.look()
            found.append(watch._pause)
        return found

    first = pauses()
    assert first[:19] == pytest.approx([0.02] * 19)
    assert first[21:] == pytest.approx([0.001 / live_categories.SHARE] * 4)
    watch.begin()
    assert pauses()[:19] == pytest.approx(first[:19])


def test_a_reader_that_opens_while_a_cell_runs_does_not_disturb_it(source: Source) -> None:
    """Who looks through all objects holds the tuple that this loop is about to make: then CPython raises."""
    lab.enable("a100")
    source.begin()

    def open_meanwhile() -> None:
        time.sleep(0.02)  # the loop below has begun
        source.open()

    for _ in range(4):
        opening = threading.Thread(target=open_meanwhile)
        opening.start()
        while opening.is_alive():
            tuple(number for number in range(40))
        source.close()
    opening = threading.Thread(target=source.open)
    opening.start()
    opening.join()
    kept = nn.Linear(1024, 1024, bias=False).cuda().requires_grad_(False)
    kept(torch.ones(1, 1024, device="cuda"))
    source.end()
    shown = dict(zip(telemetry.COLUMNS, told(Reader(source)).history[0][-1], strict=True))
    assert shown["parameters"] == 4 << 20, "all is found all the same"


STEP = 1000
"""Events of a step, in the next test."""


def teeth(steps: int) -> tuple[Curve, list[int], list[int]]:
    """A curve of so many steps that climb and fall, and the true peak and low of each."""
    curve, peaks, lows = Curve(), [], []
    for step in range(steps):
        climbs = [512 * (1 + (step * 7 + event) % 13) for event in range(STEP // 2)]
        changes = [*climbs, *(-size for size in reversed(climbs))]
        part = (1, 7, 100, STEP)[step % 4]  # as many events at a time
        for first in range(0, STEP, part):
            ns = range(step * STEP + first, min(step * STEP + first + part, (step + 1) * STEP))
            curve.take(ns, [4] * len(ns), changes[first : first + part])
        peaks.append(sum(climbs))
        lows.append(0)
    return curve, peaks, lows


def held(rows: tuple[tuple[int, ...], ...] | list[tuple[int, ...]], step: int) -> list[int]:
    return [sum(row[1:-1]) for row in rows if step * STEP <= row[0] < (step + 1) * STEP]


def test_a_curve_is_bounded_and_keeps_each_step_s_extremes() -> None:
    curve, peaks, lows = teeth(40)
    assert len(curve.rows) <= ROWS
    assert [max(held(curve.rows, step)) for step in range(40)] == peaks
    assert [min(held(curve.rows, step)) for step in range(40)] == lows
    assert [row[0] for row in curve.rows] == sorted(row[0] for row in curve.rows)
    few = kept(curve.rows, 150)
    assert len(few) <= 150
    assert [max(held(few, step)) for step in range(40)] == peaks
    assert len(curve.since(curve.number - 5)) <= 5


def test_an_update_has_few_rows_however_much_ran_since_the_last_one(source: Source) -> None:
    lab.enable("a100")
    source.open()
    reader = Reader(source)
    source.poll()
    assert reader.message() is not None
    source.curves[0], peaks, lows = teeth(40)
    update = reader.message()
    assert update is not None
    assert update.kind == "update"
    rows = update.history[0]
    assert len(source.curves[0].rows) > NEW_ROWS >= len(rows)
    assert [max(held(rows, step)) for step in range(40)] == peaks
    assert [min(held(rows, step)) for step in range(40)] == lows
    assert reader.message() is None


def test_every_step_is_told_with_its_true_peak(source: Source) -> None:
    """Whatever the wall clock does: nothing looks while the steps run, and telemetry is read once, at the end."""
    lab.enable("a100")
    source.open()
    source.begin()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(4))).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    watch = source._watch
    assert watch is not None
    watch._next = time.perf_counter() + 3600
    peaks = []
    for step in range(12):
        torch.cuda.reset_peak_memory_stats()
        model(torch.ones(128 * (1 + step % 3), 256).to("cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        peaks.append(torch.cuda.max_memory_allocated())
    message = told(Reader(source))
    ends = [ns for ns, _ in message.steps]
    assert len(ends) == 12
    found = [
        max(sum(row[1:8]) for row in message.history[0] if begin < row[0] <= end)
        for begin, end in zip([0, *ends], ends, strict=False)
    ]
    assert found == peaks
    last = dict(zip(message.columns, message.history[0][-1], strict=True))
    parameters = 4 * (256 * 256 + 256) * 4
    assert last["parameters"] == parameters
    assert 2 * parameters <= last["optimizer_state"] <= 2 * parameters + 8 * 512
    assert last["reserved"] == torch.cuda.memory_reserved()


def test_whoever_watches_again_sees_what_is_there(source: Source) -> None:
    lab.enable("a100")
    source.open()
    source.begin()
    model = nn.Linear(256, 256, bias=False).cuda()
    dropped = torch.ones(1 << 20, device="cuda")
    source.end()
    source.close()
    del dropped
    source.open()
    found = dict(zip(telemetry.COLUMNS, told(Reader(source)).history[0][-1], strict=True))
    assert found["parameters"] == model.weight.nbytes
    assert sum(found[name] for name in NAMES) == torch.cuda.memory_allocated()


def test_memory_stands_where_its_kernel_runs(source: Source) -> None:
    """The host is far ahead: a result stands behind the kernels that were launched before its own."""
    lab.enable("a100", compute="meta")
    source.open()
    source.begin()
    a = torch.ones(4096, 4096, device="cuda")
    for _ in range(20):
        a @ a
    before = lab.snapshot()
    kept_one = a @ a
    message = told(Reader(source))
    assert before.now_ns < before.devices[0].time.done_ns / 10
    assert message.history[0][-1][0] >= before.devices[0].time.done_ns
    del kept_one


@pytest.mark.long
def test_memory_is_bounded_over_many_ops(source: Source) -> None:
    """100,000 ops and 2,000 steps leave no more than any long run does."""
    lab.enable("a100", compute="meta")
    source.open()
    source.begin()
    x = torch.ones(4, device="cuda")
    watch = source._watch
    assert watch is not None
    watch.look()
    before = len(watch._made)
    with torch.no_grad():
        for number in range(100):
            for _ in range(1000):
                x + x
            source.steps += [(number, number * 20 + i) for i in range(20)]
            source.poll()
    watch.look()
    assert len(watch._made) < before + 10
    assert len(source.steps) <= STEPS
    assert len(source.curves[0].rows) <= ROWS
    message = Reader(source).message()
    assert message is not None
    assert len(message.model_dump_json()) < 100_000


class Stalled:
    """A front end that takes messages and never says a word."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        self.messages.append(message)


def test_a_reader_that_is_behind_is_sent_no_more_and_loses_nothing(source: Source) -> None:
    lab.enable("a100", memory="1GiB")
    source.open()
    front = Stalled()
    outlet = Outlet(source, front.send, acknowledges=True)
    kept = []
    for i in range(20):
        kept.append(torch.ones(1000 * (i + 1), device="cuda"))
        source.end()
        source.poll()
        outlet.publish()
    assert len(front.messages) == UNSEEN
    outlet.acked = UNSEEN
    outlet.publish()
    rows = [tuple(row) for message in front.messages for row in message["history"].get("0", ())]
    assert len({row[0] for row in rows}) >= 20
    assert rows[-1][-2] == torch.cuda.memory_allocated()


def test_a_turn_that_fails_is_made_up_for(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    lab.enable("a100")
    torch.ones(1000, device="cuda")
    poll, failures = source.poll, [RuntimeError("dictionary changed size during iteration")] * 3

    def sometimes() -> None:
        if failures:
            raise failures.pop()
        poll()

    monkeypatch.setattr(source, "poll", sometimes)
    publisher = Publisher(source)
    outlet = Outlet(source, heard.append, acknowledges=False)
    publisher.add(outlet)
    until = time.monotonic() + 30
    while not heard and time.monotonic() < until:
        publisher.kick()
        time.sleep(0.01)
    publisher.remove(outlet)
    assert not failures
    assert heard[0]["kind"] == "state"


def test_the_publisher_serves_until_the_last_reader_goes(source: Source) -> None:
    lab.enable("a100:2", memory="1GiB")
    publisher = Publisher(source)
    front, gone = Stalled(), Stalled()

    def fail(message: dict[str, Any]) -> None:
        gone.messages.append(message)
        raise OSError

    outlet = Outlet(source, front.send, acknowledges=False)
    publisher.add(outlet)
    publisher.add(Outlet(source, fail, acknowledges=False))
    source.begin()
    train(1)
    source.end()
    publisher.kick()
    until = time.monotonic() + 10
    while not (front.messages and gone.messages and front.messages[-1]["steps"]) and time.monotonic() < until:
        time.sleep(0.02)
    assert front.messages[0]["kind"] == "state"
    assert len(gone.messages) == 1
    assert publisher.outlets == [outlet]
    publisher.remove(outlet)
    assert source.machine is not None
    assert source._watch is None, "nobody reads: nothing is watched"


def test_nothing_is_recorded_for_nobody(source: Source) -> None:
    """A cell that runs after the last view has closed began a recording that nothing ended."""
    lab.enable("a100", memory="1GiB")
    source.open()
    source.close()
    source.begin()
    x = torch.ones(3, device="cuda")
    y = x.to("cpu", non_blocking=True)
    assert type(y) is torch.Tensor, "only a recording marks what a copy has not filled yet"
    source.end()


class Comm:
    """A comm as a kernel has it."""

    def __init__(self, comm_id: str) -> None:
        self.comm_id = comm_id
        self.sent: list[dict[str, Any]] = []
        self.closed: Any = None
        self.heard: Any = None

    def send(self, data: dict[str, Any]) -> None:
        self.sent.append(data)

    def on_close(self, function: Any) -> None:
        self.closed = function

    def on_msg(self, function: Any) -> None:
        self.heard = function


def test_two_comms_data_and_control() -> None:
    lab.enable("a100", memory="1GiB")
    data, control = Comm("one"), Comm("two")
    try:
        publisher.telemetry_opened(data, {"content": {"data": {"acknowledges": True}}})
        publisher.control_opened(control, {"content": {"data": {}}})

        def say(**words: Any) -> dict[str, Any]:
            control.heard({"content": {"data": {"reader": "one", **words}}})
            return control.sent[-1]

        until = time.monotonic() + 10
        while not data.sent and time.monotonic() < until:
            time.sleep(0.02)
        assert data.sent[0]["kind"] == "state"
        assert say(ack=1) == {"ok": True}
        assert say(do="pause") == {"ok": True}
        assert say(do="resume") == {"ok": True}
        assert say(do="state") == {"ok": True}
        assert not say(do="explode")["ok"]
        assert not say(reader="nobody", ack=1)["ok"]
        assert "fakegpu" not in str([message for message in data.sent if "ok" in message])
        while len([message for message in data.sent if message["kind"] == "state"]) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        assert [message["kind"] for message in data.sent].count("state") == 2
    finally:
        data.closed({})
        lab.disable()
