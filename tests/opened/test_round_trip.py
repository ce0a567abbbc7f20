"""What we write opens again as what it was: timelines, the profiler's traces, memory snapshots."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile

import fakegpu_lab as lab
from fakegpu_lab.cli import main
from fakegpu_lab.opened.opening import RANKS
from fakegpu_lab.recording_views.host_lane import launches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fakegpu_lab.recording import Recording


@pytest.fixture(autouse=True)
def machine() -> Iterator[Any]:
    yield lab.enable("a100:2")
    lab.disable()


def step() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.rand(32, 64).pin_memory().to("cuda", non_blocking=True)
    lab.host_work(40e-6)
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    loss.item()
    x.to("cuda:1").mul_(2)
    torch.cuda.synchronize()


def data(recording: Recording, kind: str) -> list[dict[str, Any]]:
    """The records, with times from the recording's start, and without what a file does not say."""
    found = []
    for record in getattr(recording, kind):
        fields = asdict(record)
        for name in [name for name in fields if name.endswith("_ns")]:
            fields[name] -= recording.began_ns
        for name in ("line", "content", "access", "dispatched_ns"):
            fields.pop(name, None)
        if kind in ("waits", "host_work"):
            fields = {name: fields[name] for name in ("name", "device", "start_ns", "end_ns", "thread")}
        found.append(fields)
    return found


def host(recording: Recording) -> dict[str, list[tuple[Any, ...]]]:
    began = recording.began_ns
    return {
        thread: [(one.record.correlation, one.began - began, one.dispatched - began, one.launching - began)
                 for one in several]
        for thread, several in launches(recording).items()
    }  # fmt: skip


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_timeline_opens_as_what_was_recorded(tmp_path: Path, name: str) -> None:
    with lab.record() as trace:
        step()
    opened = lab.open(trace.to_chrome_trace(tmp_path / name))
    for kind in ("kernels", "transfers", "waits", "host_work"):
        assert data(opened, kind) == data(trace, kind)
        assert getattr(trace, kind)
    assert host(opened) == host(trace)
    assert opened.elapsed == trace.elapsed
    assert opened.cards == trace.cards
    assert opened.totals == trace.totals
    for device in (0, 1):
        assert opened.busy(device) == trace.busy(device)
        assert opened.peak_memory(device) == trace.peak_memory(device)
    assert opened.simulated
    assert opened.machine is None
    assert "of simulated time, on NVIDIA A100-SXM4-80GB" in opened.described()
    assert opened.summary().headers == trace.summary().headers
    assert opened.summary().rows == trace.summary().rows
    assert opened.by_module().rows == trace.by_module().rows
    with pytest.raises(lab.FakeGpuError, match="has the curve of the memory, and no single allocation"):
        opened.at_peak()


def test_collectives_open_as_they_were(tmp_path: Path) -> None:
    def program() -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        lab.host_work(1e-4 * dist.get_rank())
        dist.all_reduce(torch.ones(100_000, device="cuda"))
        torch.cuda.synchronize()

    with lab.record() as trace:
        lab.run_ranks(program, 2)
    opened = lab.open(trace.to_chrome_trace(tmp_path / "ranks.json"))
    assert len(trace.collectives) == 2
    assert data(opened, "collectives") == data(trace, "collectives")
    assert max(part.waited for part in opened.collectives) == max(part.waited for part in trace.collectives) > 0


def test_the_profiler_s_trace_opens_with_the_kernels_and_copies_that_were_recorded(tmp_path: Path) -> None:
    with lab.record() as trace, profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True, profile_memory=True,
        with_stack=True,
    ) as profiler:  # fmt: skip
        step()
    path = tmp_path / "t.pt.trace.json"
    profiler.export_chrome_trace(str(path))
    opened = lab.open(path)
    assert opened.simulated
    assert "of simulated time" in opened.described()  # whoever gets the file must know

    def times(recording: Recording, kind: str) -> list[tuple[Any, ...]]:
        return [(r.device, r.stream, r.end_ns - r.start_ns) for r in getattr(recording, kind)]

    assert times(opened, "kernels") == times(trace, "kernels")
    assert times(opened, "transfers") == times(trace, "transfers")
    assert [t.nbytes for t in opened.transfers] == [t.nbytes for t in trace.transfers]
    first, mine = opened.kernels[0].start_ns, trace.kernels[0].start_ns
    for read, recorded in zip(opened.kernels, trace.kernels, strict=True):
        assert abs((read.start_ns - first) - (recorded.start_ns - mine)) <= 1_000  # to the microsecond
    same = [read.name == recorded.name for read, recorded in zip(opened.kernels, trace.kernels, strict=True)]
    assert sum(same) > len(same) / 2  # the profiler has the innermost op, such as aten::addmm of aten::linear
    assert {kernel.phase for kernel in opened.kernels} >= {"", "backward", "optimizer"}
    assert opened.peak_memory(0) > 0
    assert any("test_round_trip.py" in kernel.line for kernel in opened.kernels)
    assert opened.cards == {0: "NVIDIA A100-SXM4-80GB", 1: "NVIDIA A100-SXM4-80GB"}


def test_a_snapshot_opens_with_the_allocator_s_own_numbers(tmp_path: Path) -> None:
    kept = torch.ones(1_000_000, device="cuda")
    torch.cuda.memory._record_memory_history()
    step()
    more = torch.ones(500_000, device="cuda") * 2
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    torch.cuda.memory._record_memory_history(enabled=None)
    snapshot = lab.open(path)
    found = snapshot.memory(0)
    assert snapshot.devices[0].allocated == torch.cuda.memory_allocated(0) == found.heights[-1]
    assert snapshot.devices[0].reserved == torch.cuda.memory_reserved(0)
    assert snapshot.peak_memory(0) == max(found.heights)
    assert found.held_at_first >= kept.nbytes
    for at, height in enumerate(found.heights):  # as the bands of the figure are stacked
        assert height == sum(t.nbytes for t in found.tensors if t.first <= at < (t.last if t.freed else at + 1))
    (last,) = [
        tensor for tensor in found.tensors if tensor.first and not tensor.freed and tensor.requested == more.nbytes
    ]
    assert "test_round_trip.py, line" in last.stack[0].line
    assert any(row[0] == last.stack[0].line for row in snapshot.by_line(0).rows)
    assert {tensor.category for tensor in found.tensors} >= {"gradients", "activations", "parameters", "other"}
    assert snapshot.at_peak(0).rows
    assert snapshot.memory_figure(0, against=snapshot).data
    assert "cuda:0 had reserved" in repr(snapshot)
    assert "<code>" in snapshot._repr_html_()
    with pytest.raises(lab.FakeGpuError, match=r"There is no device 7 in snapshot\.pickle"):
        snapshot.memory(7)


def test_fragmentation_is_what_is_reserved_and_not_used(tmp_path: Path) -> None:
    blocks = [torch.empty(3 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(12)]
    del blocks[::2]
    path = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(path))
    one = lab.open(path).devices[0]
    assert one.unused == torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    free = [block["size"] for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]
            if block["state"] == "inactive"]  # fmt: skip
    assert (one.free_blocks, one.largest_free) == (len(free), max(free))


def test_lists_and_folders_are_the_ranks_of_one_job(tmp_path: Path) -> None:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        torch.ones(4, device="cuda").mul_(2)
    profiler.export_chrome_trace(str(tmp_path / "a.json"))
    trace = json.loads((tmp_path / "a.json").read_text())
    for rank, later in ((1, 3.0), (4, 1e9)):
        events = [event | ({"ts": event["ts"] + later} if "ts" in event else {}) for event in trace["traceEvents"]]
        about = {"distributedInfo": {"rank": rank}, "traceEvents": events}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace | about))
    (tmp_path / "a.json").write_text(json.dumps(trace | {"distributedInfo": {"rank": 0}}))
    near = lab.open([tmp_path / "a.json", str(tmp_path / "rank1.json")])
    assert [kernel.device for kernel in near.kernels] == [0, 1, 0, 1]
    assert near.kernels[1].start_ns - near.kernels[0].start_ns == 3_000
    far = lab.open(tmp_path)  # the folder: all three
    assert sorted(far.cards) == [0, 1, 4]
    assert "at different times, so each rank begins at 0 here" in far.described()
    with pytest.raises(lab.FakeGpuError, match=r"a.json and a.json are of the same rank 0"):
        lab.open([tmp_path / "a.json", tmp_path / "a.json"])
    with pytest.raises(lab.FakeGpuError, match=r"was given no file"):
        lab.open([])
    with pytest.raises(lab.FakeGpuError, match=r"needs the path of a file or a folder"):
        lab.open(7)
    with pytest.raises(lab.FakeGpuError, match=rf"opens at most {RANKS} together"):
        lab.open([tmp_path / "a.json"] * 65)


def nccl(rank: int, starts: list[float]) -> dict[str, Any]:
    """A trace with all-reduces that end at 100, 200, … µs."""
    events = []
    for number, start in enumerate(starts, 1):
        about = {"device": 0, "stream": 9, "correlation": number, "Collective name": "allreduce", "dtype": "Float",
                 "In msg nelems": 1_000, "Out msg nelems": 1_000, "Group size": 2, "Process Group Name": "0",
                 "Process Group Ranks": "[0, 1]"}  # fmt: skip
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL128(ncclDevKernelArgsStorage<4096ul>)"
        events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 9, "ts": start,
                       "dur": 100 * number - start, "args": about})  # fmt: skip
    return {"distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}


def test_collectives_wait_for_the_slowest_rank_where_that_is_certain(tmp_path: Path) -> None:
    for rank, starts in enumerate(([10.0, 110.0], [40.0, 105.0])):
        (tmp_path / f"{rank}.json").write_text(json.dumps(nccl(rank, starts)))
    both = lab.open(tmp_path)
    assert [(c.rank, c.number, round(c.waited * 1e6)) for c in both.collectives] == [
        (0, 1, 30), (1, 1, 0), (1, 2, 5), (0, 2, 0)
    ]  # fmt: skip
    assert {(c.operation, c.nbytes, c.algorithm, c.protocol, c.ranks) for c in both.collectives} == {
        ("all_reduce", 4_000, "ring", "LL128", (0, 1))
    }
    (tmp_path / "1.json").write_text(json.dumps(nccl(1, [40.0])))  # its recording began or ended in between
    assert not any(c.waited for c in lab.open(tmp_path).collectives)


class Shown(NamedTuple):
    status: int
    stdout: str
    stderr: str


Command = Callable[..., Shown]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``fakegpu-lab show``."""

    def run(*arguments: str) -> Shown:
        monkeypatch.setattr(sys, "argv", ["fakegpu-lab", "show", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        out = capsys.readouterr()
        return Shown(int(ended.value.code or 0), out.out, out.err)

    return run


def test_the_command_prints_a_sentence_a_table_and_advice(tmp_path: Path, command: Command) -> None:
    with lab.record() as trace:
        step()
    path = str(trace.to_chrome_trace(tmp_path / "t.json"))
    shown = command(path, "--top", "3", "--figure", str(tmp_path / "t.html"))
    assert shown.status == 0
    assert shown.stderr == ""
    opened = lab.open(path)
    assert shown.stdout.startswith(opened.described())
    assert "more)" in shown.stdout
    assert "plotly" in (tmp_path / "t.html").read_text()
    assert "Device time by module" in command(path, "--by", "module").stdout
    assert "Device time by source line" in command(path, "--by", "line").stdout


def test_the_command_shows_snapshots_and_refuses_in_one_sentence(tmp_path: Path, command: Command) -> None:
    kept = torch.ones(1_000_000, device="cuda")
    path = str(tmp_path / "snapshot.pickle")
    torch.cuda.memory._dump_snapshot(path)
    assert kept.is_cuda
    shown = command(path)
    assert "cuda:0 had reserved 20.0 MiB, of which tensors held 3.81 MiB" in shown.stdout
    assert "before the recording" in shown.stdout
    for arguments, says in (
        ((path, "--by", "module"), "A memory snapshot has no modules"),
        ((str(tmp_path / "no.json"),), "There is no file"),
        ((path, "--figure", str(tmp_path / "nowhere" / "f.html")), "cannot be written"),
    ):
        refused = command(*arguments)
        assert refused.status == 2
        assert refused.stdout == ""
        assert says in refused.stderr
        assert refused.stderr.count("\n") == 1
