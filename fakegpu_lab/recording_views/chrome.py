"""A recording as a file for Perfetto and chrome://tracing, in the Trace Event Format.

Devices are processes and streams their threads; the host is a process, with a thread for each of its own. An arrow
leads from each launch to what it launched; the memory that tensors hold is a counter of each device.

The format: "Trace Event Format", docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer
from fakegpu_lab.recording_views.host_lane import launches
from fakegpu_lab.recording_views.kernel_classes import class_of
from fakegpu_lab.recording_views.memory import memory_curve
from fakegpu_lab.recording_views.recorded import device_records, note_of_dropped

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded

_HOST = 1
"""The host's process; device n is process 2 + n. (0 is the idle process to Perfetto.)"""


def write(recorded: Recorded, path: str | Path) -> Path:
    """Write the file, compressed if its name ends in ``.gz``; return its path."""
    path = Path(path)
    text = json.dumps(as_dict(recorded), ensure_ascii=False, separators=(",", ":")).encode()
    # no time and no name in the compressed file's header: the same recording gives the same file
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return path


def as_dict(recorded: Recorded) -> dict[str, Any]:
    """The content of the file."""
    threads = _Threads()
    events = [*_device_events(recorded, threads), *_host_events(recorded, threads), *_memory_events(recorded)]
    events.sort(key=lambda event: event["ts"])
    time = "simulated" if recorded.simulated else "recorded"
    lasted = _us(recorded.ended_ns - recorded.began_ns)
    other: dict[str, Any] = {
        "producer": "fakegpu_lab", "machine": recorded.origin, "time": time, "duration": lasted
    }  # fmt: skip
    note = note_of_dropped(recorded)
    if note:
        other["note"] = note
    metadata = [*_processes(recorded), *threads.metadata]
    return {"traceEvents": [*metadata, *events], "displayTimeUnit": "ns", "otherData": other}


class _Threads:
    """Thread numbers, unique in the file: viewers differ on whether each process has its own."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {}
        self.metadata: list[dict[str, Any]] = []

    def number(self, pid: int, key: object, name: str) -> int:
        found = self._numbers.get((pid, key))
        if found is None:
            found = self._numbers[pid, key] = len(self._numbers) + 100
            order = key if isinstance(key, int) else found
            self.metadata += [
                {"ph": "M", "name": "thread_name", "pid": pid, "tid": found, "args": {"name": name}},
                {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": found, "args": {"sort_index": order}},
            ]
        return found


def _processes(recorded: Recorded) -> list[dict[str, Any]]:
    names = {_HOST: "host"} | {2 + index: f"cuda:{index} {name}" for index, name in recorded.cards.items()}
    return [
        {"ph": "M", "name": name, "pid": pid, "tid": 0, "args": {key: value}}
        for pid, process in names.items()
        for name, key, value in (("process_name", "name", process), ("process_sort_index", "sort_index", pid))
    ]


def _us(ns: int) -> float:
    return ns / 1000


def _device_events(recorded: Recorded, threads: _Threads) -> list[dict[str, Any]]:
    events = []
    for record in device_records(recorded):
        pid = 2 + record.device
        name = "stream 0 (default)" if record.stream == 0 else f"stream {record.stream}"
        tid = threads.number(pid, record.stream, name)
        start = _us(record.start_ns - recorded.began_ns)
        events.append({
            "ph": "X", "name": record.name, "cat": _category(record), "pid": pid, "tid": tid, "ts": start,
            "dur": _us(record.end_ns - record.start_ns), "args": _args(record),
        })  # fmt: skip
        events.append({"ph": "f", "bp": "e", "name": "launch", "cat": "launch", "id": record.correlation, "pid": pid,
                       "tid": tid, "ts": start})  # fmt: skip
    return events


def _category(record: Kernel | Transfer | Collective) -> str:
    if isinstance(record, Kernel):
        return f"kernel,{class_of(record.name)}"
    return "gpu_memcpy" if isinstance(record, Transfer) else "collective"


def _args(record: Kernel | Transfer | Collective) -> dict[str, Any]:
    args: dict[str, Any] = {"line": record.line, "module": record.module, "phase": record.phase, "bytes": record.nbytes}
    if isinstance(record, Kernel):
        args |= {"shapes": str([list(shape) for shape in record.shapes]), "FLOPs": record.flops, "share": record.share,
                 "backward": record.backward, "waited for": record.waited_for, "function": record.function}  # fmt: skip
    elif isinstance(record, Transfer):
        args |= {"source": record.source, "target": record.target, "pinned": record.pinned}
    elif isinstance(record, Collective):
        args |= {"group": record.group, "number": record.number, "rank": record.rank, "ranks": str(list(record.ranks)),
                 "algorithm": record.algorithm, "protocol": record.protocol, "bus bandwidth": record.bus_bandwidth,
                 "waited for ranks": _us(record.joined_ns - record.start_ns)}  # fmt: skip
    return {"correlation": record.correlation} | {key: value for key, value in args.items() if value not in ("", None)}


def _host_events(recorded: Recorded, threads: _Threads) -> list[dict[str, Any]]:
    """Launches, waits and host work of each thread; its slices do not overlap, as the format requires."""
    slices: list[tuple[str, int, int, str, str, dict[str, Any], list[int]]] = []
    together: dict[tuple[str, int], list[int]] = defaultdict(list)  # one launch of many kernels
    for record in device_records(recorded):
        together[record.thread, record.launched_ns].append(record.correlation)
    for thread, several in launches(recorded).items():
        for one in several:
            record = one.record
            what = "cudaLaunchKernel" if isinstance(record, Kernel) else "cudaMemcpyAsync"
            what = "ncclLaunch" if isinstance(record, Collective) else what
            slices += [
                (thread, began, ended, name, category, {"line": record.line}, [])
                for began, ended, name, category in (
                    (one.began, one.dispatched, "Python", "python"),
                    (one.dispatched, one.launching, record.name, "cpu_op"),
                )
                if ended > began
            ]  # fmt: skip
            correlations = together[thread, record.launched_ns]
            slices.append(
                (thread, one.launching, record.launched_ns, what, "launch", {"line": record.line}, correlations)
            )
    slices += [
        (w.thread, w.start_ns, w.end_ns, f"waits: {w.name}", "wait", {"line": w.line, "device": w.device}, [])
        for w in recorded.waits
    ]
    slices += [(w.thread, w.start_ns, w.end_ns, w.name, "host", {"line": w.line}, []) for w in recorded.host_work]
    slices.sort(key=lambda part: part[1:3])
    events, ended = [], dict[str, int]()
    for thread, began, end, name, category, about, correlations in slices:
        tid = threads.number(_HOST, thread, thread)
        start = min(max(began, ended.get(thread, began)), end)
        ended[thread] = end
        ts = _us(start - recorded.began_ns)
        args = {key: value for key, value in about.items() if value != ""}
        events.append({"ph": "X", "name": name, "cat": category, "pid": _HOST, "tid": tid, "ts": ts,
                       "dur": _us(end - start), "args": args})  # fmt: skip
        events += [
            {"ph": "s", "name": "launch", "cat": "launch", "id": number, "pid": _HOST, "tid": tid, "ts": ts}
            for number in correlations
        ]
    return events


def _memory_events(recorded: Recorded) -> list[dict[str, Any]]:
    return [
        {"ph": "C", "name": "memory held by tensors", "pid": 2 + index, "tid": 0,
         "ts": _us(when - recorded.began_ns), "args": {"bytes": nbytes}}
        for index in recorded.cards
        for when, nbytes in memory_curve(recorded, index)
    ]  # fmt: skip
