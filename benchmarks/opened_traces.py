"""Compares what `fakegpu_lab.open` reads from public traces and snapshots with a plain reading of the same files.

    python benchmarks/opened_traces.py FOLDER…

For each ``.json`` and ``.json.gz`` in the folders: the time of kernels by device and stream, the gaps between them, the
copies by kind, the collectives, all from the JSON alone, must equal what the opened recording has, to the microsecond.
For each ``.pickle``: the numbers of PyTorch's own torch/cuda/_memory_viz.py. Use it on files that you trust: the plain
reading of snapshots unpickles them. It ends with status 1 if anything differs.

Public traces are in the tests of facebookresearch/HolisticTraceAnalysis and AMD-AGI/TraceLens, and in tb_plugin/samples
of earlier versions of pytorch/kineto; snapshots are in repositories of courses (``*_memory_snapshot.pickle``).
"""

from __future__ import annotations

import gzip
import json
import pickle
import re
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch.cuda._memory_viz as memory_viz

import fakegpu_lab as lab

_WAYS = {"HtoD": "h2d", "DtoH": "d2h", "PtoP": "p2p"}


def plain(path: Path) -> dict[str, Any]:
    """What a trace's device events say, from the JSON alone; times in µs since the first of them."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    copies: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, 0])
    collectives = [0, 0.0]
    first: float | None = None
    for event in json.loads(text)["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category = event.get("cat", "").lower()
        if category not in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"):
            continue
        args, name = event["args"], event["name"]
        way = next((kind for word, kind in _WAYS.items() if "memcpy" in category and word in name), None)
        if way is not None:
            entry = copies[way]
            entry[0] += 1
            entry[1] += event["dur"]
            entry[2] += args.get("bytes", 0)
        elif category == "kernel" and name.startswith("nccl"):
            collectives[0] += 1
            collectives[1] += event["dur"]
        else:
            first = event["ts"] if first is None else first  # doubles since 1970 are a quarter of a µs fine
            start = event["ts"] - first
            spans[args["device"], args["stream"]].append((start, start + event["dur"]))
    return {
        "kernels": {stream: (len(each), sum(end - start for start, end in each)) for stream, each in spans.items()},
        "gaps": {stream: gaps(each) for stream, each in spans.items()},
        "copies": dict(copies),
        "collectives": collectives,
    }


def gaps(spans: list[tuple[float, float]]) -> list[float]:
    """The times between the kernels of a stream, µs."""
    found, until = [], None
    for start, end in sorted(spans):
        if until is not None and start > until:
            found.append(start - until)
        until = end if until is None else max(until, end)
    return found


def opened(path: Path) -> tuple[dict[str, Any], str]:
    """The same of an opened recording, and the sentence that describes it."""
    trace = lab.open(path)
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for kernel in trace.kernels:
        spans[kernel.device, kernel.stream].append((kernel.start_ns / 1e3, kernel.end_ns / 1e3))
    copies: dict[str, list[Any]] = defaultdict(lambda: [0, 0.0, 0])
    for copy in trace.transfers:
        entry = copies[copy.kind]
        entry[0] += 1
        entry[1] += (copy.end_ns - copy.start_ns) / 1e3
        entry[2] += copy.nbytes
    collectives = [len(trace.collectives), sum((c.end_ns - c.start_ns) / 1e3 for c in trace.collectives)]
    return {
        "kernels": {stream: (len(each), sum(end - start for start, end in each)) for stream, each in spans.items()},
        "gaps": {stream: gaps(each) for stream, each in spans.items()},
        "copies": dict(copies),
        "collectives": collectives,
    }, trace.described()


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two readings differ by more than a microsecond, or in a count."""
    if isinstance(one, dict):
        keys = {*one, *other}
        return [
            text
            for key in sorted(keys, key=str)
            for text in (
                differences(one[key], other[key], f"{where} {key}")
                if key in one and key in other
                else [f"{where} {key} is in one of them only"]
            )
        ]
    if isinstance(one, (list, tuple)):
        if where.startswith(" gaps"):
            one, other = [g for g in one if g > 0.5], [g for g in other if g > 0.5]  # no rounding of times
            if len(one) != len(other):
                return [f"{where}: {len(one)} and {len(other)} gaps"]
        return [text for a, b in zip(one, other, strict=True) for text in differences(a, b, where)]
    if where.startswith((" copies", " collectives", " kernels")) and type(one) is type(other) is int:
        return [] if one == other else [f"{where}: {one} and {other}"]  # counts and bytes
    return [] if abs(one - other) <= max(1.0, 1e-9 * abs(one)) else [f"{where}: {one} and {other}"]


def snapshot_differences(path: Path) -> tuple[list[str], str]:
    """Where a snapshot differs from PyTorch's own numbers, and the sentence that describes it."""
    snapshot = lab.open(path)
    data = pickle.loads(path.read_bytes())
    found = []
    said = memory_viz.segsum(data)
    for name, ours in (
        ("total_reserved", sum(one.reserved for one in snapshot.devices.values())),
        ("total_allocated", sum(one.requested for one in snapshot.devices.values())),
        ("segments", sum(one.segments for one in snapshot.devices.values())),
    ):
        shown = re.search(rf"^{name}: (.+)$", said, re.MULTILINE)
        theirs = shown[1] if shown else ""
        mine = str(ours) if name == "segments" else repr(memory_viz.Bytes(ours))
        if theirs != mine:
            found.append(f"{name}: {theirs} and {mine}")
    for device, one in snapshot.devices.items():
        segments = [segment for segment in data["segments"] if segment["device"] == device]
        blocks = [block for segment in segments for block in segment["blocks"]]
        free = [block["size"] for block in blocks if block["state"] == "inactive"]
        held = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
        for what, ours, theirs in (
            ("unused", one.unused, sum(free)),
            ("largest unused block", one.largest_free, max(free, default=0)),
            ("active", one.active, sum(memory_viz.calc_active(segment) for segment in segments)),
            ("held at the end", snapshot.memory(device).heights[-1], held),
        ):
            if ours != theirs:
                found.append(f"cuda:{device} {what}: {theirs} and {ours}")
    return found, snapshot.described()


def main(folders: list[str]) -> int:
    """Compare the files of all folders; return the number of files that differ."""
    wrong = read = refused = 0
    for folder in folders:
        for path in sorted(file for file in Path(folder).rglob("*") if file.is_file()):
            if not path.name.endswith((".json", ".json.gz", ".pickle")):
                continue
            began = time.perf_counter()
            try:
                if path.suffix == ".pickle":
                    found, text = snapshot_differences(path)
                else:
                    ours, text = opened(path)
                    found = differences(plain(path), ours)
            except lab.FakeGpuError as error:
                refused += 1
                print(f"refused  {path.name}: {error}")
                continue
            read += 1
            wrong += bool(found)
            print(f"{'DIFFERS' if found else 'equal'}  {path.name} ({time.perf_counter() - began:.1f} s): {text}")
            for line in found[:5]:
                print(f"         {line}")
    print(f"{read} files opened, {wrong} of them differ; {refused} refused")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
