"""Traces of real cards open, with what a plain reading of the JSON finds in them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import fakegpu_lab as lab
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.host_lane import launches
from fakegpu_lab.recording_views.kernel_classes import class_of

REAL = Path(__file__).parents[1] / "recording_views" / "real"
TRACES = ("alexnet", "event_sync", "triton_example", "dlrm_rank0", "dlrm_rank1", "bert_h100", "resnet50_v100",
          "resnet50_ddp_v100")  # fmt: skip
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "opened_traces.py"


def events(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((REAL / f"{name}.json.gz").read_bytes()))["traceEvents"]
    return found


@pytest.fixture(scope="module", params=TRACES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_kernels_copies_and_gaps_are_those_of_a_plain_reading() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), str(REAL)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "8 files opened, 0 of them differ; 1 refused" in done.stdout


def test_a_reading_that_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARK.parent))
    import opened_traces

    path = REAL / "alexnet.json.gz"
    plain, (ours, _) = opened_traces.plain(path), opened_traces.opened(path)
    assert opened_traces.differences(plain, ours) == []
    stream = next(iter(ours["kernels"]))
    count, took = ours["kernels"][stream]
    ours["kernels"][stream] = count, took + 2
    ours["copies"]["h2d"][0] += 1
    assert len(opened_traces.differences(plain, ours)) == 2


def test_every_view_opens(name: str, tmp_path: Path) -> None:
    trace = lab.open(REAL / f"{name}.json.gz")
    assert trace.elapsed > 0
    assert 0 < trace.busy(min(trace.cards)) <= trace.elapsed
    assert "simulated" not in trace.described()
    for table in (trace.summary(), trace.by_line(), trace.by_module()):
        assert table.rows
        assert "typically" not in table.headers
    assert trace.figure().data
    assert lab.advise(trace) is not None
    written = trace.to_chrome_trace(tmp_path / "again.json")
    again = lab.open(written)
    assert [(k.name, k.function, k.start_ns, k.end_ns) for k in again.kernels] == [
        (k.name, k.function, k.start_ns, k.end_ns) for k in trace.kernels
    ]
    assert again.elapsed == trace.elapsed
    assert not again.simulated


def test_the_sentence_says_on_which_card_and_rank() -> None:
    described = lab.open(REAL / "alexnet.json.gz").described()
    assert "recorded on NVIDIA A100-PG509-200 (rank 0)" in described
    assert "without Python's functions" in described
    assert "without Python's functions" not in lab.open(REAL / "bert_h100.json.gz").described()
    assert "a card whose name is not in the file" in lab.open(REAL / "dlrm_rank0.json.gz").described()


def test_kernels_are_named_after_their_ops_and_keep_their_own_names() -> None:
    trace = lab.open(REAL / "alexnet.json.gz")
    convolutions = [kernel for kernel in trace.kernels if kernel.name == "aten::cudnn_convolution"]
    assert any("xmma_fprop_implicit_gemm" in kernel.function for kernel in convolutions)
    assert {class_of(kernel.name) for kernel in convolutions} == {"convolution"}
    (triton,) = lab.open(REAL / "triton_example.json.gz").kernels
    assert triton.name == triton.function == "triton_poi_fused_add_cos_sin_0"
    assert triton.end_ns - triton.start_ns == 1760
    assert class_of(triton.name) == "elementwise"


def test_each_kernel_knows_its_launch(name: str) -> None:
    trace = lab.open(REAL / f"{name}.json.gz")
    calls = {
        event["args"].get("correlation"): event["dur"]
        for event in events(name)
        if event.get("cat") in ("cuda_runtime", "cuda_driver", "Runtime")
    }
    launched = [
        event
        for event in events(name)
        if event.get("cat") in ("kernel", "Kernel") and event["args"]["correlation"] in calls
    ]
    known = [k for k in (*trace.kernels, *trace.collectives) if k.thread and not k.name.startswith(("Mem", "none"))]
    assert len(known) == len(launched)
    for thread, several in launches(trace).items():
        assert thread
        for one in several:
            assert one.began <= one.dispatched <= one.launching <= one.record.launched_ns


def test_with_stacks_lines_and_modules_are_known() -> None:
    trace = lab.open(REAL / "bert_h100.json.gz")
    modules = {kernel.module for kernel in trace.kernels}
    assert "BertLMHeadModel_0.BertModel_0.BertEncoder_0.BertLayer_2.BertIntermediate_2.Linear_16" in modules
    lines = Counter(kernel.line for kernel in trace.kernels)
    assert lines["bert/modeling_bert.py, forward (line 364)"] == 16
    assert not any(line.startswith("torch/") or "<built-in" in line for line in lines)
    assert "The host keeps cuda:0 waiting" in repr(lab.advise(trace))


def test_memory_is_followed_if_it_was_recorded() -> None:
    trace = lab.open(REAL / "bert_h100.json.gz")
    totals = [event["args"]["Total Allocated"] for event in events("bert_h100") if event["name"] == "[memory]"
              and event["args"]["Device Type"] == 1]  # fmt: skip
    assert trace.peak_memory() == max(totals)
    found = trace.memory()
    assert found.peak == max(totals)
    assert found.heights[-1] == totals[-1]
    assert any(tensor.module.endswith("Linear_25") for tensor in found.tensors)
    assert trace.at_peak().rows
    assert trace.memory_figure().data


def test_without_memory_one_sentence_says_what_to_record() -> None:
    trace = lab.open(REAL / "alexnet.json.gz")
    for ask in (trace.peak_memory, trace.memory, trace.at_peak, trace.memory_figure):
        with pytest.raises(lab.FakeGpuError, match=r"says nothing about memory: record with profile_memory=True"):
            ask()
    with pytest.raises(lab.FakeGpuError, match=r"There is no device 3: alexnet.json.gz has 0 alone"):
        trace.busy(3)


def test_waits_say_what_they_are_for() -> None:
    trace = lab.open(REAL / "alexnet.json.gz")
    assert {wait.name.partition(" (")[0] for wait in trace.waits} >= {
        "cudaDeviceSynchronize", "the copy to the device, which is not non_blocking"
    }  # fmt: skip
    synchronized = [event["dur"] for event in events("alexnet") if event["name"].endswith("Synchronize")]
    assert len(trace.waits) == len(synchronized) == 21
    assert sum(wait.end_ns - wait.start_ns for wait in trace.waits) == 1000 * sum(synchronized)


def test_collectives_say_what_they_moved() -> None:
    trace = lab.open(REAL / "dlrm_rank0.json.gz")
    assert {c.name for c in trace.collectives} == {"nccl:send_recv", "nccl:all_gather_into_tensor"}
    (gather,) = [c for c in trace.collectives if c.operation == "all_gather_into_tensor"]
    (around,) = [event for event in events("dlrm_rank0") if event["name"] == "nccl:_all_gather_base"]
    assert around["args"]["Input type"] == ["signed char"]
    assert gather.nbytes == around["args"]["Input Dims"][0][0]
    assert (gather.algorithm, gather.protocol) == ("ring", "Simple")
    assert len(gather.ranks) == 128
    assert all(kernel.phase == "backward" for kernel in trace.kernels if "backward" in kernel.thread)


def test_two_ranks_open_as_two_devices_on_one_clock() -> None:
    alone = [lab.open(REAL / f"dlrm_rank{rank}.json.gz") for rank in (0, 1)]
    both = lab.open([REAL / "dlrm_rank1.json.gz", REAL / "dlrm_rank0.json.gz"])
    assert list(both.cards) == [0, 1]
    for rank in (0, 1):
        mine = [kernel for kernel in both.kernels if kernel.device == rank]
        assert len(mine) == len(alone[rank].kernels)
        assert both.busy(rank) == pytest.approx(alone[rank].busy(min(alone[rank].cards)), abs=1e-9)
    assert "ranks 0, 1" in both.described()
    assert len(both.collectives) == sum(len(one.collectives) for one in alone)
    assert {part.rank for part in both.collectives} == {0, 1}
    assert not any(part.waited for part in both.collectives)  # the file does not number them, and some do not overlap
    assert {lane for kernel in both.kernels if (lane := kernel.thread)} >= {"rank 0 main", "rank 1 main"}
    assert both.figure().data
    assert {launch.record.correlation for several in launches(both).values() for launch in several} <= {
        record.correlation for record in (*both.kernels, *both.transfers, *both.collectives)
    }


def test_an_opened_recording_is_refused_by_checks() -> None:
    """A check judges what the student's own code did here."""
    from fakegpu_lab.course.expect import runs

    with pytest.raises(Exception, match="record"):
        runs.recording_of(lab.open(REAL / "alexnet.json.gz"))


def test_a_part_of_a_trace_leaves_out_how_cuda_starts() -> None:
    whole = lab.open(REAL / "alexnet.json.gz")
    part = whole.part(43.2)
    assert part.elapsed == pytest.approx(whole.elapsed - 43.2, abs=1e-6)
    assert part.kernels == [kernel for kernel in whole.kernels if kernel.start_ns >= part.began_ns]
    assert 0 < len(part.kernels) < len(whole.kernels)
    assert part.busy() == pytest.approx(sum(kernel.duration for kernel in part.kernels), rel=0.01)
    assert all(part.began_ns <= one.start_ns <= one.end_ns <= part.ended_ns for one in (*part.waits, *part.host_work))
    assert sum(one.duration for one in part.host_work) < 0.3 < sum(one.duration for one in whole.host_work)
    both = [whole.part(43.2, 43.3), whole.part(43.3)]
    assert sum(len(one.kernels) for one in both) == len(part.kernels)
    assert both[0].elapsed == pytest.approx(0.1, abs=1e-6)
    assert "Nothing ran on a device from 1 s to 2 s; alexnet.json.gz takes 43.4" in _refused(whole, 1, 2)
    with pytest.raises(FakeGpuError, match="says nothing about memory"):
        part.memory()
    assert whole.part().kernels == whole.kernels
    assert lab.compare(part, whole.part(43.32)).sentence
    part.figure()


def _refused(trace: Any, start: float, end: float) -> str:
    with pytest.raises(FakeGpuError) as raised:
        trace.part(start, end)
    return str(raised.value)
