"""Writes the profiler's Chrome trace, for Perfetto, as Kineto does (libkineto/src/output_json.cpp)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._C._autograd import DeviceType

from fakegpu_lab.hardware.time.records import SIMULATED

if TYPE_CHECKING:
    from fakegpu_lab.driver.profiler.events import Event

_HOST = 0
"""Process number of the host; devices are 1, 2, … (Kineto uses the real process id, which differs in every run.)"""


_INSTANTS = ("[memory]", "[OutOfMemory]")
_MOST_PROCESSES = 5_000_000
"""Kineto sorts devices behind every process number of a host (libkineto/include/output_base.h, kExceedMaxPid)."""


def save(events: list[Event], path: str, began_ns: int, metadata: dict[str, str]) -> None:
    """Write `events` as JSON, compressed if `path` ends in ``.gz``; `metadata` maps names to JSON texts."""
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [_properties(i) for i in range(torch.cuda.device_count())],
        **{name: json.loads(text) for name, text in metadata.items()},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
        "otherData": {"time": SIMULATED},
        "traceEvents": _trace_events([e for e in events if e.name() not in _INSTANTS], began_ns)
        + _memory(events, began_ns)
        + _window(events, began_ns),
        "traceName": path,
    }
    target = Path(path)
    with gzip.open(target, "wt") if target.suffix == ".gz" else target.open("w", encoding="utf-8") as file:
        json.dump(trace, file, indent=None, separators=(",", ":"))


def _properties(index: int) -> dict[str, Any]:
    device = torch.cuda.get_device_properties(index)
    return {
        "id": index, "name": device.name, "totalGlobalMem": device.total_memory, "computeMajor": device.major,
        "computeMinor": device.minor, "numSms": device.multi_processor_count,
    }  # fmt: skip


def _process_and_thread(event: Event) -> tuple[int, int]:
    """The host and its thread, or a device and its stream."""
    if event.device_type() == DeviceType.CPU:
        return _HOST, event.start_thread_id()
    return 1 + event.device_index(), event.device_resource_id()


def _us(ns: float) -> float:
    return round(ns / 1000, 6)


def _trace_events(events: list[Event], began_ns: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    first = _us(began_ns)
    tracks = sorted({_process_and_thread(event) for event in events})
    for process in sorted({process for process, _ in tracks}):
        label = f"GPU {process - 1}" if process else "CPU"
        for name, arguments in (
            ("process_name", {"name": "python"}),
            ("process_labels", {"labels": label}),
            ("process_sort_index", {"sort_index": _MOST_PROCESSES + process - 1 if process else 0}),
        ):
            made.append({"ph": "M", "name": name, "pid": process, "tid": 0, "ts": first, "args": arguments})
    for process, thread in tracks:
        name = f"stream {thread}" if process else f"thread {thread}"
        names = {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "ts": first, "args": {"name": name}}
        made.append(names)
    for event in events:
        process, thread = _process_and_thread(event)
        start = _us(began_ns + event.start_ns())
        entry = {
            "ph": "X", "cat": event.activity_type(), "name": event.name(), "pid": process, "tid": thread, "ts": start,
            "dur": _us(event.duration_ns()), "args": _arguments(event),
        }  # fmt: skip
        made.append(entry)
        if event.flow_id() and event.activity_type() in ("cuda_runtime", "kernel", "gpu_memcpy"):
            arrow = {"cat": "ac2g", "name": "ac2g", "id": event.flow_id(), "pid": process, "tid": thread, "ts": start}
            made.append({"ph": "s", **arrow} if event.flow_start() else {"ph": "f", "bp": "e", **arrow})
    return made


def _arguments(event: Event) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    linked = event.linked_correlation_id()
    if event.activity_type() in ("cpu_op", "user_annotation"):
        arguments["External id"] = event.correlation_id()
    elif linked:
        arguments["External id"] = linked
    arguments |= event.args
    if event.sequence_nr() >= 0:
        arguments |= {"Sequence number": event.sequence_nr(), "Fwd thread id": event.fwd_thread_id()}
    if event.shapes():
        arguments["Input Dims"] = event.structured_input_shapes() or event.shapes()
        arguments["Input type"] = event.dtypes()
    return arguments


def _memory(events: list[Event], began_ns: int) -> list[dict[str, Any]]:
    """The memory that tensors took and gave back, as Kineto's instant events."""
    made = []
    for event in events:
        if event.name() in _INSTANTS:
            on_host = event.device_type() == DeviceType.CPU
            arguments = {
                "Device Type": 0 if on_host else 1, "Device Id": -1 if on_host else event.device_index(),
                "Bytes": event.nbytes(), **event.args,
            }  # fmt: skip
            made.append({
                "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": event.name(), "pid": _HOST,
                "tid": event.start_thread_id(), "ts": _us(began_ns + event.start_ns()), "args": arguments,
            })  # fmt: skip
    return made


def _window(events: list[Event], began_ns: int) -> list[dict[str, Any]]:
    """The time that was recorded (libkineto/src/output_json.cpp, handleTraceSpan and finalizeTrace)."""
    start, took = _us(began_ns), _us(max((event.end_ns() for event in events), default=0.0))
    return [
        {"ph": "X", "cat": "Trace", "ts": start, "dur": took, "pid": "Spans",
         "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}},
        {"name": "process_sort_index", "ph": "M", "ts": start, "pid": "Spans", "tid": 0,
         "args": {"sort_index": 536870912}},
        {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces",
         "tid": "Trace PyTorch Profiler", "ts": start},
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": start + took},  # to the last bit
    ]  # fmt: skip
