"""Whole steps of training in public traces of torch.profiler, beside the same programs simulated (step_traces.csv).

    python -m tests.fidelity.step_traces [--traces FOLDER …]

The folders are ``tests/data`` of HolisticTraceAnalysis (https://github.com/facebookresearch/HolisticTraceAnalysis, MIT)
and ``et_replay/tests/inputs`` of PARAM (https://github.com/facebookresearch/param, MIT): with them, what the cards took
is read again; without, only the simulation is. Both are recorded by torch.profiler and read by the same code. The
simulated profiler costs nothing; the real one's cost is in the real times.
"""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
from bisect import bisect_right
from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import torch
from torch import nn
from torch.nn import functional as F

from tests.fidelity.programs.data_parallel import ranks
from tests.fidelity.programs.steps import card, images, network
from tests.fidelity.published import error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FILE = Path(__file__).parent / "step_traces.csv"
COLUMNS = ["trace", "card", "thread", "op", "count", "host real", "host ours", "kernels real", "kernels ours"]


Figures = dict[tuple[str, str], tuple[int, float, float]]
"""By thread ("forward", "backward") and op: how many in a step, the median µs on the host, the µs of their kernels."""


class Program(NamedTuple):
    """A program, and which of its steps in a trace is compared.

    A step is named by the annotation around it, or by the optimizer's: it goes from the end of that one to the end of
    the next. The host's times are those of another step than the kernels' where the first has waits for a full queue.
    They are left out where the profiler's own cost hides them: it recorded the Python stack of each op.
    """

    trace: str
    step: str
    host_step: str
    run: Callable[[], tuple[Figures, float]]


def data_parallel(machine: str, gpus: int, *, tf32: bool) -> tuple[Figures, float]:
    """ResNet-50 under DistributedDataParallel with SGD and 32 images: one card of `gpus`."""
    with ranks(machine, gpus, tf32=tf32):
        plain, layout = network("resnet50", {"fp32"})
        model = torch.nn.parallel.DistributedDataParallel(plain)
        pixels, labels = images(32, layout), torch.zeros(32, dtype=torch.long, device="cuda")
        sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)

        def step() -> None:
            sgd.zero_grad()
            F.cross_entropy(model(pixels), labels).backward()
            sgd.step()
            torch.cuda.synchronize()

        return simulated(step)


SERVER = "cloud-t4"
"""The host of a machine with eight RTX 2080 Ti: its processor is not published, but it is no desktop's.

It was chosen before the first simulation, because it is the only host of a server with cards of that age.
"""


def linear() -> tuple[Figures, float]:
    """Layers of 1024×1024 with 512 rows: the shapes and the order are those of the execution trace beside the trace."""
    with card("rtx2080ti", host=SERVER):
        with torch.device("cuda"):
            layers = [layer for _ in range(21) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
            model = nn.Sequential(*layers, nn.Softmax(1))
            rows, labels = torch.empty(512, 1024), torch.zeros(512, dtype=torch.long)
        sgd = torch.optim.SGD(model.parameters(), 0.01)

        def step() -> None:
            outputs = model(rows)
            sgd.zero_grad(set_to_none=False)
            F.cross_entropy(outputs, labels).backward()
            sgd.step()

        return simulated(step)


def resnet18() -> tuple[Figures, float]:
    """128 images from pageable memory, as pytorch/examples/imagenet trains; the loader is never late."""
    with card("rtx2080ti", host=SERVER):
        model, _ = network("resnet18", {"fp32"})
        sgd = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
        pixels, labels = torch.empty(128, 3, 224, 224), torch.zeros(128, dtype=torch.long)
        total = torch.zeros(1, device="cuda")

        def step() -> None:
            inputs, classes = pixels.to("cuda"), labels.to("cuda")
            sgd.zero_grad()
            loss = F.cross_entropy(model(inputs), classes)
            loss.backward()
            sgd.step()
            total.add_(loss.data)

        return simulated(step)


PROGRAMS = (
    Program(
        "ns_resolution_trace",
        "ProfilerStep#103",
        "ProfilerStep#101",
        partial(data_parallel, "v100", 1, tf32=False),
    ),
    Program("nccl_parser_config", "ProfilerStep#5", "", partial(data_parallel, "a100-40gb:2", 2, tf32=True)),
    Program("linear_kineto", "Optimizer.step#SGD.step 27", "Optimizer.step#SGD.step 27", linear),
    Program("resnet_kineto", "Optimizer.step#SGD.step 7", "Optimizer.step#SGD.step 7", resnet18),
)

SAME = {
    "AddmmBackward0": "LinearBackward0",
    "CudnnBatchNormBackward0": "NativeBatchNormBackward0",
    "ReshapeAliasBackward0": "ViewBackward0",
}
"""Nodes of autograd with another name here."""


def _named(event: dict[str, Any]) -> str:
    name = event["name"].removeprefix("autograd::engine::evaluate_function: ")
    return SAME.get(name, name)


def _span(spans: Iterable[dict[str, Any]], step: str) -> tuple[float, float]:
    """Where a step begins and ends, µs."""
    notes = [event for event in spans if event.get("cat") == "user_annotation"]
    name, _, number = step.rpartition(" ")
    ends = sorted(event["ts"] + event["dur"] for event in notes if event["name"] == name)
    if number.isdigit() and len(ends) > int(number):
        return ends[int(number) - 1], ends[int(number)]
    whole = next(event for event in notes if event["name"] == step)
    return whole["ts"], whole["ts"] + whole["dur"]


def figures(events: Iterable[dict[str, Any]], step: str) -> tuple[Figures, float]:
    """What a step's ops and kernels take, and the step; the ops that others call are in their callers.

    Collectives are left out: how long one takes depends on when the other ranks come.
    """
    spans = [event for event in events if event.get("ph") == "X"]
    begin, end = _span(spans, step)
    inside = [event for event in spans if begin <= event["ts"] < end]
    outermost: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in sorted((e for e in inside if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        found = outermost[event["tid"]]
        if not found or found[-1]["ts"] + found[-1]["dur"] <= event["ts"]:
            found.append(event)
    begun = {thread: [event["ts"] for event in found] for thread, found in outermost.items()}
    calls = {e["args"]["correlation"]: e for e in inside if e.get("cat") == "cuda_runtime" and "args" in e}
    kernels: dict[int, float] = defaultdict(float)
    for event in spans:
        call = calls.get(event.get("args", {}).get("correlation"))
        if "nccl" in event["name"].lower():
            continue
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and call is not None:
            at = bisect_right(begun.get(call["tid"], []), call["ts"]) - 1
            if at >= 0:
                kernels[id(outermost[call["tid"]][at])] += event["dur"]
    times, busy = defaultdict(list), defaultdict(float)
    for found in outermost.values():
        for event in found:
            node = "evaluate_function" in event["name"]
            key = ("backward" if node else "forward", _named(event))
            times[key].append(event["dur"])
            busy[key] += kernels.get(id(event), 0.0)
    return {key: (len(several), median(several), busy[key]) for key, several in times.items()}, end - begin


def simulated(step: Callable[[], None]) -> tuple[Figures, float]:
    """The same of a program here, in its steady third step: as long as the host takes for it, or as the card does."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        with torch.profiler.profile() as profiler:
            for number in range(3):
                start.record()
                with torch.profiler.record_function(f"step {number}"):
                    step()
                end.record()
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        found, host = figures(json.loads(path.read_text("utf-8"))["traceEvents"], "step 2")
    torch.cuda.synchronize()
    return found, max(host, 1e3 * start.elapsed_time(end))


def read() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def measured(program: Program, folders: Iterable[Path]) -> list[list[str]]:
    """The first seven columns without ours: what a trace says."""
    names = (f"{program.trace}/*.gz", f"{program.trace}.json.gz")
    file = min(file for folder in folders for name in names for file in folder.glob(name))
    found = json.loads(gzip.decompress(file.read_bytes()))
    name = found["deviceProperties"][0]["name"]
    real, whole = figures(found["traceEvents"], program.step)
    host = figures(found["traceEvents"], program.host_step)[0] if program.host_step else {}
    rows = [
        [program.trace, name, *key, str(count), f"{host[key][1]:.1f}" if key in host else "", f"{busy:.0f}"]
        for key, (count, _, busy) in real.items()
    ]
    total = sum(busy for _, _, busy in real.values())
    return [
        *rows,
        [program.trace, name, "", "the step", "1", f"{whole:.1f}" if program.host_step else "", f"{total:.0f}"],
    ]


def compared(program: Program, real: Iterable[list[str]]) -> list[list[str]]:
    """The rows of a trace with ours; ops that only one of the two has are left out."""
    ours, whole = program.run()
    ours["", "the step"] = (1, whole, sum(busy for _, _, busy in ours.values()))
    rows = []
    for *named, thread, op, count, host, busy in real:
        here = ours.get((thread, op))
        if here is not None:
            mine = [f"{here[1]:.1f}" if host else "", busy, f"{here[2]:.0f}"]
            rows.append([*named, thread, op, count, host, *mine])
    return rows


def errors(trace: str, what: str) -> list[float]:
    """How far off each op's ``"host"`` or ``"kernels"`` are, of those that take 10 µs in a step."""
    return [
        error(float(row[f"{what} ours"]), float(row[f"{what} real"]))
        for row in read()
        if row["trace"] == trace
        and row["thread"]
        and min(float(row[f"{what} {w}"] or 0) for w in ("ours", "real")) >= 10
    ]


def table() -> str:
    """The errors by trace, in Markdown."""
    lines = [
        "| Trace | Card | Ops | Host's time: half within | Kernels: half within | All kernels | Step |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for program in PROGRAMS:
        rows = [row for row in read() if row["trace"] == program.trace]
        step = next(row for row in rows if row["op"] == "the step")
        host = errors(program.trace, "host")
        near = [f"{100 * median(found):.0f}%" if found else "" for found in (host, errors(program.trace, "kernels"))]
        both = [_both(step, what) for what in ("kernels", "host")]
        cells = [program.trace, step["card"], str(len(rows) - 1), *near, *both]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _both(row: dict[str, str], what: str) -> str:
    real, ours = row[f"{what} real"], row[f"{what} ours"]
    return f"{float(real) / 1e3:.1f} ms, here {float(ours) / 1e3:.1f}" if real and ours else ""


@click.command()
@click.option("--traces", multiple=True, type=click.Path(exists=True, path_type=Path))
def main(traces: tuple[Path, ...]) -> None:
    """Write step_traces.csv again."""
    known = [] if traces else read()
    rows = []
    for program in PROGRAMS:
        mine = [list(row.values()) for row in known if row["trace"] == program.trace]
        real = [[*row[:6], row[7]] for row in mine] if not traces else measured(program, traces)
        rows += compared(program, real)
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
