"""Reads what `Recording.to_chrome_trace` wrote: the same kernels, copies, collectives and times as were recorded.

Such a file has the names of ops, source lines and modules; of memory it has the curve, and no single allocation.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import msgspec

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.hardware.time.records import Collective, HostWork, Kernel, Transfer, Wait
from fakegpu_lab.opened.content import broken, refusal
from fakegpu_lab.opened.device_work import HostTimes, OpenedRecords
from fakegpu_lab.opened.recorded_trace import OpenedTrace
from fakegpu_lab.opened.trace_file import ERRORS, Event, WrongEventError, check_times, said

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Shapes
    from fakegpu_lab.opened.trace_file import TraceFile

_WAITS = "waits: "
_RANKS = 2**17


class _Args(msgspec.Struct, gc=False):
    name: str = ""
    line: str = ""
    module: str = ""
    phase: str = ""
    nbytes: int = msgspec.field(default=0, name="bytes")
    correlation: int = 0
    shapes: str = ""
    flops: int = msgspec.field(default=0, name="FLOPs")
    share: float = 1.0
    backward: bool = False
    waited_for: str = msgspec.field(default="", name="waited for")
    function: str = ""
    source: int | None = None
    target: int | None = None
    pinned: bool | None = None
    group: str = ""
    number: int = 0
    rank: int = 0
    ranks: str = ""
    algorithm: str = ""
    protocol: str = ""
    bus_bandwidth: float = msgspec.field(default=0.0, name="bus bandwidth")
    waited_us: float = msgspec.field(default=0.0, name="waited for ranks")
    device: int = 0


_event = msgspec.json.Decoder(Event).decode
_args = msgspec.json.Decoder(_Args).decode


class _File:
    """The events of a file, by what they are."""

    def __init__(self) -> None:
        self.processes: dict[Any, str] = {}
        self.threads: dict[Any, str] = {}
        self.slices: list[tuple[Event, _Args]] = []
        self.arrows: dict[tuple[str, float], list[int]] = defaultdict(list)
        self.peaks: dict[Any, int] = {}

    def take(self, event: Event) -> None:
        if event.ph not in ("M", "X", "s", "C") or not isinstance(event.pid, int) or not isinstance(event.tid, int):
            return
        if event.ph == "M":
            named = {"process_name": self.processes, "thread_name": self.threads}.get(event.name)
            if named is not None:
                named[event.pid if event.name == "process_name" else event.tid] = printable(_args(event.args).name)
            return
        check_times(event)
        if event.ph == "X":
            self.slices.append((event, _args(event.args)))
        elif event.ph == "s" and isinstance(event.id, int):
            self.arrows[str(event.tid), event.ts].append(event.id)
        elif event.ph == "C":
            self.peaks[event.pid] = max(self.peaks.get(event.pid, 0), _args(event.args).nbytes)


def read_own(file: TraceFile, name: str) -> OpenedTrace:
    """Read the file.

    Raises
    ------
    FakeGpuError
        It is not as it was written, or it has no device.
    """
    events = _File()
    try:
        for number, raw in enumerate(file.raw):  # noqa: B007 - the messages need it
            events.take(_event(raw))
    except WrongEventError as wrong:
        raise broken(file.path, f"event {number:,} {wrong}") from None
    except ERRORS as error:
        raise broken(file.path, f"event {number:,} is not as fakegpu_lab writes it ({said(error)})") from None
    cards = {}
    for pid, text in events.processes.items():
        found = re.fullmatch(r"cuda:(\d{1,5}) ?(.*)", text)
        if found:
            cards[pid] = int(found[1]), found[2]
    if not cards:
        raise refusal(file.path, "a recording without a device", "record again, with lab.record()")
    records, times = OpenedRecords(), HostTimes()
    launches = _host(events, records, times)
    for event, args in events.slices:
        if event.pid in cards:
            _device_record(event, args, cards[event.pid][0], events, launches, records)
    for each in (records.kernels, records.transfers, records.collectives):
        each.sort(key=lambda record: record.correlation)
    records.peaks = {cards[pid][0]: peak for pid, peak in events.peaks.items() if pid in cards}
    last = max((_ns(event.ts + (event.dur or 0.0)) for event, _ in events.slices), default=0)
    lasted = file.other.get("duration")
    records.last_ns = max(last, _ns(lasted) if isinstance(lasted, (int, float)) and 0 <= lasted < 1e12 else 0)
    return OpenedTrace(
        records, times, dict(sorted(cards.values())), name, simulated=file.other.get("time") != "recorded"
    )  # fmt: skip


def _ns(us: float) -> int:
    return round(us * 1000)


def _host(events: _File, records: OpenedRecords, times: HostTimes) -> dict[int, tuple[int, str]]:
    """Read the host's lanes; return when each launch ended, and on which thread."""
    found: dict[int, tuple[int, str]] = {}
    ended: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)  # by thread, the last slice of each category
    took, before = [], []
    for event, args in sorted(events.slices, key=lambda pair: (pair[0].ts, pair[0].dur or 0.0)):
        start, end = _ns(event.ts), _ns(event.ts + (event.dur or 0.0))
        thread = events.threads.get(event.tid, "")
        common = start, end, thread, _line(args.line), printable(args.module), printable(args.phase)
        if event.cat in ("python", "cpu_op"):
            ended[event.tid][event.cat] = start, end
        elif event.cat == "launch":
            op, python = (ended[event.tid].get(cat, (0, -1)) for cat in ("cpu_op", "python"))
            dispatched = op[0] if op[1] == start else start
            began = python[0] if python[1] == dispatched else dispatched
            took.append(end - start)
            before.append(start - dispatched)
            for correlation in events.arrows.get((str(event.tid), event.ts), ()):
                times.launches[correlation] = began, dispatched, start
                found[correlation] = end, thread
        elif event.cat == "wait":
            records.waits.append(Wait(printable(event.name.removeprefix(_WAITS)), args.device, 0, *common))
        elif event.cat == "host":
            records.host_work.append(HostWork(printable(event.name), -1, 0, *common))
    if took:
        times.launch_ns = sorted(took)[len(took) // 2]
        times.op_ns = max(before)
    return found


def _device_record(
    event: Event, args: _Args, device: int, events: _File, launches: dict[int, tuple[int, str]], records: OpenedRecords
) -> None:
    start, end = _ns(event.ts), _ns(event.ts + (event.dur or 0.0))
    stream = re.search(r"\d{1,9}", events.threads.get(event.tid, ""))
    launched, thread = launches.get(args.correlation, (start, ""))
    name = printable(event.name)
    common = (
        name, device, int(stream[0]) if stream else 0, start, end, thread, _line(args.line), printable(args.module),
        printable(args.phase),
    )  # fmt: skip
    if event.cat.startswith("kernel"):
        op_us = 0  # `HostTimes` has when it was dispatched
        records.kernels.append(
            Kernel(*common, launched_ns=launched, flops=args.flops, nbytes=args.nbytes, share=args.share,
                   shapes=_shapes(args.shapes), backward=args.backward, correlation=args.correlation,
                   waited_for=printable(args.waited_for), dispatched_ns=op_us, function=printable(args.function))
        )  # fmt: skip
    elif event.cat == "gpu_memcpy":
        kind = next((kind for word, kind in (("HtoD", "h2d"), ("DtoH", "d2h")) if word in name), "p2p")
        pinned = args.pinned if args.pinned is not None else "Pinned" in name if kind != "p2p" else None
        source = None if kind == "h2d" else device if args.source is None else args.source
        target = None if kind == "d2h" else device if args.target is None else args.target
        records.transfers.append(
            Transfer(*common, kind=kind, source=source, target=target, nbytes=args.nbytes, pinned=pinned,
                     launched_ns=launched, correlation=args.correlation)
        )  # fmt: skip
    elif event.cat == "collective":
        ranks = tuple(int(rank) for rank in re.findall(r"\d{1,9}", args.ranks)[:_RANKS])
        records.collectives.append(
            Collective(*common, group=printable(args.group), rank=args.rank, ranks=ranks, number=args.number,
                       nbytes=args.nbytes, algorithm=printable(args.algorithm), protocol=printable(args.protocol),
                       bus_bandwidth=args.bus_bandwidth, joined_ns=min(start + _ns(max(args.waited_us, 0.0)), end),
                       launched_ns=launched, correlation=args.correlation)
        )  # fmt: skip


def _line(line: str) -> str:
    """A source line of another computer: its file is not looked up on this one."""
    path, _, number = printable(line).rpartition(":")
    shown = "/".join(path.replace("\\", "/").split("/")[-2:])
    return f"{shown}, line {number}" if shown and number.isdecimal() else printable(line)


def _shapes(text: str) -> Shapes:
    try:
        found = msgspec.json.decode(text, type=list[list[int]]) if text else []
    except (msgspec.DecodeError, RecursionError):
        return ()
    return tuple(tuple(shape) for shape in found)
