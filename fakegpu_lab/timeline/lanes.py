"""A recording as bars in lanes: the host's threads, then each device's modules, streams and copy engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer
from fakegpu_lab.timeline import hover
from fakegpu_lab.timeline.kernel_classes import class_of
from fakegpu_lab.timeline.recorded import on_devices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.timeline.recorded import Recorded

MODULES = 30
"""Spans in a lane of modules; with more, the modules' paths are cut shorter."""


IDLE_NS = 50_000
"""A module's span ends where its device idles longer: ten launches long."""


@dataclass(slots=True)
class Bar:
    """One bar; `kind` gives its colour, `count` how many were put together in it."""

    start_ns: int
    end_ns: int
    kind: str
    label: str
    hover: str
    count: int = 1


@dataclass
class Lane:
    """Bars that are drawn in one row, in the order of their start."""

    label: str
    bars: list[Bar] = field(default_factory=list)


def lanes(recorded: Recorded, device: int | None, start_ns: int, end_ns: int, *, hovers: bool = True) -> list[Lane]:
    """All that was going on at some time from `start_ns` to `end_ns`, on one device or on all.

    Without `hovers` the bars of kernels and launches have no text to hover: it is most of the work.
    """
    records = on_devices(recorded)
    found = _by_rank([*_host(recorded, records, device, hovers), *_devices(records, device, hovers)], recorded)
    for lane in found:
        lane.bars = [bar for bar in lane.bars if bar.end_ns >= start_ns and bar.start_ns <= end_ns]
        lane.bars.sort(key=lambda bar: bar.start_ns)
    return [lane for lane in found if lane.bars]


def _by_rank(found: list[Lane], recorded: Recorded) -> list[Lane]:
    """Where each host thread has a device of its own, as ranks have, let the thread stand with the device."""
    devices: dict[str, set[int]] = {}
    for part in recorded.collectives:
        devices.setdefault(part.thread, set()).add(part.device)
    own = {f"host {thread}": next(iter(used)) for thread, used in devices.items() if len(used) == 1}
    if len(own) < 2:
        return found

    def place(entry: tuple[int, Lane]) -> tuple[int, int]:
        number, lane = entry
        index = own.get(lane.label)
        if index is None and lane.label.startswith("cuda:"):
            index = int(lane.label.removeprefix("cuda:").partition(" ")[0])
        return (-1 if index is None else index), number

    return [lane for _, lane in sorted(enumerate(found), key=place)]


def _host(
    recorded: Recorded, records: Sequence[Kernel | Transfer | Collective], device: int | None, hovers: bool
) -> list[Lane]:
    overheads = {each.index: each.default_stream.overhead for each in recorded.machine.devices}
    threads: dict[str, Lane] = {}

    def lane(thread: str) -> list[Bar]:
        return threads.setdefault(thread, Lane(f"host {thread}")).bars

    launches: dict[tuple[str, int], Bar] = {}
    for record in records:
        if device not in (None, record.device):
            continue
        key = (record.thread, record.launched_ns)
        if key in launches:  # one launch of many kernels
            launches[key].count += 1
            continue
        start = record.launched_ns - overheads.get(record.device, 0)
        bar = launches[key] = Bar(start, record.launched_ns, "launch", "", hover.launch(record) if hovers else "")
        lane(record.thread).append(bar)
    for wait in recorded.waits:
        if device in (None, wait.device):
            lane(wait.thread).append(Bar(wait.start_ns, wait.end_ns, "host waits", "waits", hover.wait(wait)))
    for work in recorded.host_work:
        lane(work.thread).append(Bar(work.start_ns, work.end_ns, "host works", work.name, hover.host_work(work)))
    if len(threads) == 1:
        next(iter(threads.values())).label = "host"
    return list(threads.values())


def _devices(records: Sequence[Kernel | Transfer | Collective], device: int | None, hovers: bool) -> list[Lane]:
    found: dict[tuple[int, int, int], Lane] = {}
    before: dict[tuple[int, int], Kernel | Transfer | Collective] = {}

    def lane(index: int, order: int, stream: int, label: str) -> list[Bar]:
        return found.setdefault((index, order, stream), Lane(f"cuda:{index} {label}")).bars

    for record in records:
        place = (record.device, record.stream)
        text = hover.ran(record, before.get(place)) if hovers else ""
        before[place] = record
        if isinstance(record, Transfer):
            bar = Bar(record.start_ns, record.end_ns, "copy", size(record.nbytes), text)
            for index, order, label in ((record.target, 2, "copy in"), (record.source, 3, "copy out")):
                if index is not None and device in (None, index):
                    lane(index, order, 0, label).append(bar)
        elif device in (None, record.device):
            bars = lane(record.device, 1, record.stream, f"stream {record.stream}")
            if isinstance(record, Kernel):
                label = record.name.rpartition("::")[2]
                bars.append(Bar(record.start_ns, record.end_ns, class_of(record.name), label, text))
            else:
                bars += _collective(record, text)
    for index in {record.device for record in records if device in (None, record.device)}:
        spans = _modules([record for record in records if isinstance(record, Kernel) and record.device == index])
        if spans:
            lane(index, 0, 0, "modules").extend(spans)
    for (index, order, stream), entry in found.items():
        if order == 1 and all(bar.kind in ("collective", "waits for ranks") for bar in entry.bars):
            entry.label = f"cuda:{index} NCCL, stream {stream}"
    return [found[key] for key in sorted(found)]


def _collective(record: Collective, text: str) -> list[Bar]:
    """Its wait for the other ranks, and the moving of bytes."""
    bars = [Bar(record.joined_ns, record.end_ns, "collective", f"{record.operation} {size(record.nbytes)}", text)]
    if record.joined_ns > record.start_ns:
        bars.insert(0, Bar(record.start_ns, record.joined_ns, "waits for ranks", "", text))
    return bars


def bands(recorded: Recorded, device: int | None, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """From when to when bytes moved between several devices that are drawn, in the order of their start."""
    if device is not None:
        return []
    found = {
        (part.joined_ns, part.end_ns)
        for part in recorded.collectives
        if len(part.ranks) > 1 and part.end_ns >= start_ns and part.joined_ns <= end_ns
    }
    return sorted(found)


def _modules(kernels: list[Kernel]) -> list[Bar]:
    """Spans of kernels of one module; the paths are as long as lets there be no more than `MODULES`."""
    if not any(kernel.module for kernel in kernels):
        return []
    kernels.sort(key=lambda kernel: kernel.start_ns)
    spans: list[Bar] = []
    for depth in (4, 3, 2, 1):
        spans = _spans(kernels, depth)
        if len(spans) <= MODULES:
            break
    return spans


def _spans(kernels: Iterable[Kernel], depth: int) -> list[Bar]:
    spans: list[Bar] = []
    path, waiting = "", 0
    for kernel in kernels:
        kind = "backward" if kernel.backward else "forward"
        if not kernel.module:  # a residual's sum, say: it belongs to a span only if that goes on after it
            waiting += 1
            continue
        here = ".".join(kernel.module.split(".")[:depth])
        idle = spans and kernel.start_ns - spans[-1].end_ns > IDLE_NS and not waiting
        if spans and here == path and spans[-1].kind == kind and not idle:
            spans[-1].end_ns = max(spans[-1].end_ns, kernel.end_ns)
            spans[-1].count += 1 + waiting
        else:
            short = here.partition(".")[2].removeprefix("module.")  # DDP's and DataParallel's name for what they wrap
            short = here if short.isdigit() or not short else short  # of a Sequential alone, "0" says too little
            spans.append(Bar(kernel.start_ns, kernel.end_ns, kind, short, ""))
            path = here
            spans[-1].hover = hover.module(here, kind)
        waiting = 0
    for span in spans:
        span.hover += hover.lasting(span.end_ns - span.start_ns, span.count)
    return spans


def thinned(all_lanes: Sequence[Lane], limit: int) -> int:
    """Put short neighbours together until there are no more than `limit` bars; return how many were put together.

    The grid is as fine as `limit` allows: what is put together would not be told apart in a picture of that width.
    """
    bars = [bar for lane in all_lanes for bar in lane.bars]
    if len(bars) <= limit:
        return 0
    width = max(max(bar.end_ns for bar in bars) - min(bar.start_ns for bar in bars), 1)
    step = width / limit
    while True:
        merged = [_merged(lane.bars, step) for lane in all_lanes]
        if sum(map(len, merged)) <= limit or step > width:
            break
        step *= 1.5
    for lane, fewer in zip(all_lanes, merged, strict=True):
        lane.bars = fewer
    return sum(bar.count for lane in merged for bar in lane if bar.count > 1)


def _merged(bars: Sequence[Bar], step: float) -> list[Bar]:
    fewer: list[Bar] = []
    group: list[Bar] = []
    for bar in bars:
        if group and bar.end_ns - group[0].start_ns > step:
            fewer.append(_together(group))
            group = []
        group.append(bar)
    if group:
        fewer.append(_together(group))
    return fewer


def _together(group: list[Bar]) -> Bar:
    if len(group) == 1:
        return group[0]
    kinds: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for bar in group:
        kinds[bar.kind] += bar.end_ns - bar.start_ns
        names[bar.label or bar.kind] += 1
    start, end = group[0].start_ns, max(bar.end_ns for bar in group)
    count = sum(bar.count for bar in group)
    return Bar(start, end, kinds.most_common(1)[0][0], "", hover.together(count, end - start, names), count)
