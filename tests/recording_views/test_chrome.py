"""The file for Perfetto, held to the Trace Event Format."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from pathlib import Path

Event = dict[str, Any]


def ns(us: float) -> int:
    """As whole nanoseconds: sums of floats are not exact."""
    return round(us * 1000)


NEEDED = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float), "args": dict},
    "C": {"name": str, "pid": int, "tid": int, "ts": (int, float), "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": (int, float)},
    "f": {"name": str, "cat": str, "id": int, "pid": int, "tid": int, "ts": (int, float), "bp": str},
}
"""The fields of each kind of event, and their types."""


def events(trace: lab.Trace, folder: Path) -> list[Event]:
    path = trace.to_chrome_trace(folder / "trace.json")
    return list(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])


def test_every_event_has_the_fields_of_its_kind(trace: lab.Trace, tmp_path: Path) -> None:
    found = events(trace, tmp_path)
    assert {event["ph"] for event in found} == set(NEEDED)
    for event in found:
        for field, kind in NEEDED[event["ph"]].items():
            assert isinstance(event[field], kind), (field, event)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())


def test_every_process_and_thread_has_a_name_and_a_place(trace: lab.Trace, tmp_path: Path) -> None:
    found = events(trace, tmp_path)
    named = defaultdict(set)
    for event in found:
        if event["ph"] == "M":
            named[event["name"]].add((event["pid"], event["tid"]))
    used = {(event["pid"], event["tid"]) for event in found if event["ph"] in "Xsf"}
    assert used <= named["thread_name"] & named["thread_sort_index"]
    assert {pid for pid, _ in used} <= {pid for pid, _ in named["process_name"]}
    assert len({tid for _, tid in used}) == len(used), "a thread's number is used once"
    names = {event["args"]["name"] for event in found if event["name"] in ("process_name", "thread_name")}
    assert {"host", "cuda:0 NVIDIA A100-SXM4-80GB", "MainThread", "stream 0 (default)"} <= names


def test_times_are_in_order_and_exact(trace: lab.Trace, tmp_path: Path) -> None:
    found = events(trace, tmp_path)
    slices = defaultdict(list)
    for event in found:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["dur"])))
    for parts in slices.values():
        assert parts == sorted(parts)
        for (start, length), (after, _) in pairwise(parts):
            assert start + length <= after, "what a thread or a stream does, it does one after the other"
    kernels = [e for e in found if e["ph"] == "X" and e["cat"].startswith("kernel")]
    assert sorted((ns(e["ts"]), ns(e["dur"])) for e in kernels) == sorted(
        (k.start_ns - trace.began_ns, k.end_ns - k.start_ns) for k in trace.kernels
    )


def test_an_arrow_leads_from_each_launch_to_what_it_launched(trace: lab.Trace, tmp_path: Path) -> None:
    found = events(trace, tmp_path)
    starts = {event["id"]: event for event in found if event["ph"] == "s"}
    ends = {event["id"]: event for event in found if event["ph"] == "f"}
    assert len(starts) == sum(event["ph"] == "s" for event in found), "no number is used twice"
    assert set(starts) == set(ends) == {r.correlation for r in (*trace.kernels, *trace.transfers)}
    slices = [event for event in found if event["ph"] == "X"]

    def enclosing(arrow: Event) -> Event:
        """The slice to which a viewer ties an arrow."""
        (one,) = [
            s for s in slices
            if s["tid"] == arrow["tid"] and s["ts"] <= arrow["ts"] and ns(arrow["ts"]) < ns(s["ts"]) + ns(s["dur"])
        ]  # fmt: skip
        return one

    for number, start in starts.items():
        assert enclosing(start)["cat"] == "launch"
        assert enclosing(ends[number])["args"]["correlation"] == number
        assert start["ts"] <= ends[number]["ts"]


def test_kernels_tell_what_they_are(trace: lab.Trace, tmp_path: Path) -> None:
    (event,) = [e for e in events(trace, tmp_path) if e["name"] == "aten::linear" and e["cat"] != "cpu_op"]
    (kernel,) = [k for k in trace.kernels if k.name == "aten::linear"]
    assert event["cat"] == "kernel,matmul"
    assert event["args"]["FLOPs"] == kernel.flops
    assert event["args"]["bytes"] == kernel.nbytes
    assert event["args"]["shapes"] == "[[64, 256], [256, 256], [256]]"
    assert event["args"]["module"] == "Sequential.0"
    assert event["args"]["line"] == kernel.line


def test_the_memory_counter_reaches_the_peak(trace: lab.Trace, tmp_path: Path) -> None:
    counted = [e["args"]["bytes"] for e in events(trace, tmp_path) if e["ph"] == "C" and e["pid"] == 2]
    assert max(counted) == trace.peak_memory(0)
    assert counted[-1] == torch.cuda.memory_allocated(0)


def test_the_same_program_gives_the_same_file(machine: object, tmp_path: Path) -> None:
    def run(name: str) -> bytes:
        a = torch.ones(64, 64, device="cuda")
        with lab.record() as trace:
            (a @ a).sum().item()
        return trace.to_chrome_trace(tmp_path / name).read_bytes()

    run("warm.json.gz")  # the first product takes the workspace, too
    first = run("first.json.gz")
    assert run("second.json.gz") == first
    assert json.loads(gzip.decompress(first))["displayTimeUnit"] == "ns"


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_path_may_be_text(trace: lab.Trace, tmp_path: Path, name: str) -> None:
    path = trace.to_chrome_trace(str(tmp_path / name))
    assert path == tmp_path / name
    assert path.stat().st_size > 1000
