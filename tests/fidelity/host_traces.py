"""The host's times in public traces of torch.profiler (host_traces.csv): of ops, of CUDA's runtime, between ops.

    python -m tests.fidelity.host_traces TRACES

TRACES is ``tests/data`` of HolisticTraceAnalysis (https://github.com/facebookresearch/HolisticTraceAnalysis, MIT). The
profiler's own cost is in the times. An op's own time is without that of the ops that it calls.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE = Path(__file__).parent / "host_traces.csv"
TRACES = ("critical_path/alexnet", "df_index_resolver", "nccl_parser_config", "negative_queue_length_values_check",
          "ns_resolution_trace", "trace_diff/control", "trace_diff/test", "trace_filter")  # fmt: skip
CALLS = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaEventRecord", "cudaEventQuery")
COLUMNS = ["trace", "card", "held_out", "thread", "event", "count", "first quartile", "median", "third quartile",
           "own median"]  # fmt: skip
FEWEST = 10
LONGEST_GAP = 1_000
"""Longer gaps, µs, are waits or work of the program, not PyTorch's Python."""


def set_aside(trace: str) -> bool:
    """Every second trace, by alphabet, is."""
    return TRACES.index(trace) % 2 == 1


def _row(thread: str, event: str, times: list[float], own: list[float] | None = None) -> list[str]:
    own_median = f"{quantiles(own, n=4)[1]:.1f}" if own else ""
    return [thread, event, str(len(times)), *(f"{one:.1f}" for one in quantiles(times, n=4)), own_median]


def _thread(events: list[dict[str, Any]]) -> Iterator[list[str]]:
    """The rows of one thread's ops."""
    backward = sum("autograd::engine" in event["name"] for event in events) > len(events) / 20
    thread = "backward" if backward else "forward"
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    running: list[tuple[float, int]] = []
    inner: dict[int, float] = defaultdict(float)
    times, own, gaps, end = defaultdict(list), defaultdict(list), list[float](), None
    names = []
    for number, event in enumerate(events):
        while running and running[-1][0] <= event["ts"]:
            running.pop()
        if running:
            inner[running[-1][1]] += event["dur"]
        elif end is not None and 0 <= event["ts"] - end < LONGEST_GAP:
            gaps.append(event["ts"] - end)
        names.append(event["name"] + (", called by an op" if running else ""))
        if not running:
            end = event["ts"] + event["dur"]
        running.append((event["ts"] + event["dur"], number))
    for number, event in enumerate(events):
        times[names[number]].append(event["dur"])
        own[names[number]].append(event["dur"] - inner[number])
    yield _row(thread, "gap to the next op", gaps)
    for name in sorted(times):
        if len(times[name]) >= FEWEST and name.startswith(("aten::", "autograd::engine")):
            yield _row(thread, name, times[name], own[name])


def rows(trace: str, path: Path) -> Iterator[list[str]]:
    """The rows of one trace."""
    found = json.loads(gzip.decompress(path.read_bytes()))
    card = (found.get("deviceProperties") or [{"name": "not named"}])[0]["name"]
    threads, calls = defaultdict(list), defaultdict(list)
    for event in found["traceEvents"]:
        if event.get("ph") == "X" and event.get("cat") == "cpu_op":
            threads[event["tid"]].append(event)
        elif event.get("ph") == "X" and event.get("cat") == "cuda_runtime":
            calls[event["name"]].append(event["dur"])
    several = [_row("", name, calls[name]) for name in CALLS if len(calls[name]) >= FEWEST]
    several += [row for events in threads.values() if len(events) >= 100 for row in _thread(events)]
    for row in several:
        yield [trace, card, "yes" if set_aside(trace) else "", *row]


@click.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
def main(directory: Path) -> None:
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for trace in TRACES:
            path = min((directory / trace).glob("*.gz"))
            writer.writerows(rows(trace, path))


if __name__ == "__main__":
    main()
