"""Rules about kernels and collectives: short kernels, idle devices, communication that nothing hides."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from fakegpu_lab.advice.finding import OFTEN, Finding, total_ns
from fakegpu_lab.formatting.units import duration, percent, size
from fakegpu_lab.hardware.time.records import LOADER_WAIT, Kernel, Transfer
from fakegpu_lab.recording_views import host_lane, spans
from fakegpu_lab.recording_views.kernel_classes import class_of
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Collective
    from fakegpu_lab.recording_views.host_lane import HostLaunch
    from fakegpu_lab.recording_views.recorded import Recorded

_MANY_KERNELS = 20
"""A training step of two layers has more; fewer say little about a program."""
_COPY, _TO_HOST = "the copy to ", "the copy to the host"
_CUDA_CALL = re.compile(r"cu(da)?[A-Z]")
"""In a real recording, a long call such as cudaMalloc: no preparation of data."""


def _by_device(recorded: Recorded) -> dict[int, list[Kernel]]:
    found: dict[int, list[Kernel]] = defaultdict(list)
    for kernel in recorded.kernels:
        found[kernel.device].append(kernel)
    return found


def launch_bound(recorded: Recorded) -> list[Finding]:
    """The device waits for the host, which takes longer to launch a kernel than the kernel runs.

    Devices that wait alike, as those of several ranks do, are one finding: the one that waits longest, and the names of
    the others.
    """
    found: dict[int, Finding] = {}
    whole = recorded.ended_ns - recorded.began_ns
    for device, kernels in _by_device(recorded).items():
        waiting = [k for k in kernels if not k.waited_for]
        busy = spans.length(spans.of(kernels))
        if len(kernels) < _MANY_KERNELS or len(waiting) < 0.5 * len(kernels) or busy > 0.6 * whole:
            continue
        launched = [one for thread in host_lane.launches(recorded, device).values() for one in thread]
        several = [one for one in launched if isinstance(one.record, Kernel)]
        python, pytorch, launch = (
            sum(parts)
            for parts in zip(
                *((o.dispatched - o.began, o.launching - o.dispatched, o.record.launched_ns - o.launching)
                  for o in several), strict=True,
            )
        )  # fmt: skip
        host = python + pytorch + launch
        if host < 0.5 * (whole - busy):
            continue  # something else keeps the device waiting
        lines: Counter[str] = Counter()
        for one in several:
            lines[one.record.line] += one.host_ns
        line, took = lines.most_common(1)[0]
        mean = sum(k.end_ns - k.start_ns for k in kernels) / len(kernels)
        copies = [(one.host_ns, one.record.kind) for one in launched if isinstance(one.record, Transfer)]
        waits = [wait for wait in recorded.waits if wait.device == device and wait.name.startswith(_COPY)]
        back = [wait for wait in waits if wait.name.startswith(_TO_HOST)]
        read = total_ns(back) + sum(ns for ns, kind in copies if kind == "d2h")
        copying = total_ns(waits) + sum(ns for ns, _ in copies)
        found[device] = Finding(
            "launch_bound", f"The host keeps cuda:{device} waiting",
            f"cuda:{device} was busy {percent(busy, whole)} of the time: its {len(kernels):,} kernels ran for "
            f"{duration(mean)} on average, and the host took {duration(host / len(several))} to launch each "
            f"({duration(python / len(several))} in Python, {duration(pytorch / len(several))} in PyTorch's C++, "
            f"{duration(launch / len(several))} for the launch itself); {percent(took, host)} of the host's time went "
            f"to {place(line).label or 'one line'}.",
            _helps(several, read, copying, len(back), busy, whole), line, whole - busy,
        )  # fmt: skip
    if not found:
        return []
    device = max(found, key=lambda one: found[one].cost_ns)
    others = [f"cuda:{other}" for other in sorted(found) if other != device]
    if others:
        worst = found[device]
        return [replace(worst, title=f"{worst.title}, and {', '.join(others)} as well")]
    return [found[device]]


def _helps(several: list[HostLaunch], read: int, copying: int, reads: int, busy: int, whole: int) -> str:
    """What makes a launch-bound program faster, with the time that each would save of `whole`.

    `read` is what `reads` of single values took, the waits and launching the copies; `copying` is that of all copies,
    which are in no graph. Where a value is read in each step, a graph's kernels do not hide them.
    """
    host = sum(one.host_ns for one in several)
    idle = whole - busy
    steps = [one for one in several if one.record.phase == "optimizer"]
    count = sum(
        one.record.phase == "optimizer" != before.record.phase for before, one in pairwise((several[-1], *several))
    )
    steps_ns = max(count, 1) * (several[0].record.launched_ns - several[0].launching)
    kept = copying + steps_ns if reads >= max(count, 1) else max(copying + steps_ns - busy, 0)
    ways = [(min(host - steps_ns, idle - kept), "a CUDA graph of the step (one launch for all kernels)")]
    fused = sum(
        one.host_ns
        for before, one in pairwise(several)
        if one.record.phase != "optimizer" and _fusible(before.record) and _fusible(one.record)
    )
    ways.append((fused, "`torch.compile` (elementwise kernels that follow each other become one)"))
    if len(steps) >= OFTEN and not any("_fused_" in one.record.name for one in steps):
        saved = sum(one.host_ns for one in steps) - max(count, 1) * 2 * steps[0].host_ns  # it counts its steps, too
        ways.append((saved, "the optimizer with `fused=True`"))
    ways.append((read, "reading values once, after the loop, instead of `.item()` in each step"))
    ways = sorted(((min(ns, idle), what) for ns, what in ways if ns > 0.05 * whole), key=lambda way: -way[0])
    told = [f"{what} would save {duration(ns)} of {duration(whole)}" for ns, what in ways]
    larger = f"a batch about {max(round(host / max(busy, 1)), 2)} times as large takes hardly longer"
    sentence = "; ".join([*told, larger])
    return f"{sentence[0].upper()}{sentence[1:]}."


def _fusible(record: Kernel | Transfer | Collective) -> bool:
    return isinstance(record, Kernel) and class_of(record.name) in ("elementwise", "normalization", "reduction")


def gpu_idle(recorded: Recorded) -> list[Finding]:
    """The device is idle while the host prepares data, or while data is on its way."""
    found = []
    whole = recorded.ended_ns - recorded.began_ns
    for device, kernels in _by_device(recorded).items():
        busy = spans.of(kernels)
        if len(kernels) < OFTEN or spans.length(busy) > 0.5 * whole:
            continue
        loading = [work for work in recorded.host_work if work.name == LOADER_WAIT]
        work = [one for one in recorded.host_work if one.name != LOADER_WAIT and not _CUDA_CALL.match(one.name)]
        copies = [c for c in recorded.transfers if c.device == device and c.kind == "h2d"]
        for causes, what, remedy in (
            (work, "the host was busy on its own", "Prepare data while the GPU trains: DataLoader(…, num_workers=4)."),
            (
                loading,
                "the host waited for the DataLoader's workers",
                "Use more workers (num_workers=…), or give each batch less work: the workers are slower than the GPU.",
            ),
            (
                copies,
                "data was being copied to it",
                "Copy the next batch on a separate stream while this one computes.",
            ),
        ):
            caused = spans.of(causes)
            alone = spans.length(caused) - spans.shared(caused, busy)
            if alone < 0.25 * whole:
                continue
            worst = max(causes, key=lambda c: c.end_ns - c.start_ns)
            found.append(Finding(
                "gpu_idle", f"cuda:{device} stands idle",
                f"It was busy {percent(spans.length(busy), whole)} of the time. For {duration(alone)} "
                f"({percent(alone, whole)}) it was idle while {what}.",
                remedy, worst.line, alone,
            ))  # fmt: skip
    return found


def data_parallel(recorded: Recorded) -> list[Finding]:
    """`nn.DataParallel`: one process copies the model to every device in every step."""
    kernels = [k for k in recorded.kernels if k.module.partition(".")[0] == "DataParallel"]
    if not kernels:
        return []
    copies = [c for c in recorded.transfers if c.kind == "p2p"]
    nbytes = sum(copy.nbytes for copy in copies)
    moved = f" {len(copies):,} copies between the devices moved {size(nbytes)}." if copies else ""
    return [Finding(
        "data_parallel", "nn.DataParallel",
        "One process sends the parameters to every device and gathers the outputs on the first, in every step."
        f"{moved}",
        "DistributedDataParallel keeps the parameters where they are and only adds up gradients, while backward runs.",
        kernels[0].line, sum(copy.end_ns - copy.start_ns for copy in copies),
    )]  # fmt: skip


def all_reduce_alone(recorded: Recorded) -> list[Finding]:
    """Gradients are reduced after backward instead of during it."""
    found = []
    whole = recorded.ended_ns - recorded.began_ns
    kernels = _by_device(recorded)
    reductions = ("all_reduce", "reduce_scatter")
    for device in sorted({part.device for part in recorded.collectives}):
        parts = [c for c in recorded.collectives if c.device == device and c.operation in reductions]
        moving = spans.merged((c.joined_ns or c.start_ns, c.end_ns) for c in parts)
        alone = spans.length(moving) - spans.shared(moving, spans.of(kernels.get(device, [])))
        if len(parts) < 2 or alone < 0.8 * spans.length(moving) or alone < 0.05 * whole:
            continue
        found.append(Finding(
            "all_reduce_alone", "Communication is not hidden behind computation",
            f"cuda:{device} moved {size(sum(c.nbytes for c in parts))} in {len(parts):,} collectives; for "
            f"{duration(alone)} of their {duration(spans.length(moving))} no kernel ran at the same time.",
            "Let DistributedDataParallel add up gradients in buckets while backward runs, or start the operation with "
            "async_op=True and wait for it when its result is needed.",
            parts[0].line, alone,
        ))  # fmt: skip
        break  # all ranks of one program do the same
    return found
