"""A recording as bars in lanes: the host's threads, then each device's modules, streams and copy engines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer
from fakegpu_lab.recording_views import hover
from fakegpu_lab.recording_views.host_lane import launches
from fakegpu_lab.recording_views.kernel_classes import class_of
from fakegpu_lab.recording_views.recorded import device_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fakegpu_lab.recording_views.recorded import Recorded

MODULES = 30
"""Spans in a lane of modules; with more, the modules' paths are shortened."""

IDLE_LAUNCHES, IDLE_OPS = 10, 2
"""A module's span ends where its device is idle for longer than ten launches and two of the longest ops take."""


@dataclass(slots=True)
class Bar:
    """One bar; `kind` decides its colour, `count` is the number of records merged into it."""

    start_ns: int
    end_ns: int
    kind: str
    label: str
    hover: str
    count: int = 1


@dataclass
class Lane:
    """The bars of one row, in the order of their start."""

    label: str
    bars: list[Bar] = field(default_factory=list)


def lanes(recorded: Recorded, device: int | None, start_ns: int, end_ns: int, *, hovers: bool = True) -> list[Lane]:
    """Everything that was going on between `start_ns` and `end_ns`, on one device or on all.

    Without `hovers` the bars of kernels and launches have no hover texts, which are most of the work.
    """
    found = _by_rank([*_host(recorded, device, hovers), *_devices(recorded, device, hovers)], recorded)
    for lane in found:
        lane.bars = [bar for bar in lane.bars if bar.end_ns >= start_ns and bar.start_ns <= end_ns]
        lane.bars.sort(key=lambda bar: bar.start_ns)
    return [lane for lane in found if lane.bars]


def _by_rank(found: list[Lane], recorded: Recorded) -> list[Lane]:
    """Put each host thread beside its device, if each has a device of its own, as ranks have."""
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


def _host(recorded: Recorded, device: int | None, hovers: bool) -> list[Lane]:
    threads: dict[str, Lane] = {}

    def lane(thread: str) -> list[Bar]:
        return threads.setdefault(thread, Lane(f"host {thread}")).bars

    for thread, several in launches(recorded, device).items():
        bars = lane(thread) if several else []
        for one in several:
            text = hover.launch(one.record) if hovers else ""
            for kind, start, end in (
                ("python", one.began, one.dispatched),
                ("dispatch", one.dispatched, one.launching),
                ("launch", one.launching, one.record.launched_ns),
            ):
                if end > start or kind == "launch":
                    bars.append(Bar(start, end, kind, "", text, one.count if kind == "launch" else 1))
    for wait in recorded.waits:
        if device in (None, wait.device):
            lane(wait.thread).append(Bar(wait.start_ns, wait.end_ns, "host waits", "waits", hover.wait(wait)))
    for work in recorded.host_work:
        lane(work.thread).append(Bar(work.start_ns, work.end_ns, "host works", work.name, hover.host_work(work)))
    if len(threads) == 1:
        next(iter(threads.values())).label = "host"
    return list(threads.values())


_MODULES, _STREAM, _COPY_IN, _COPY_OUT = range(4)  # the order of a device's lanes
_Key = tuple[int, int, int]  # device, kind of lane, stream


def _devices(recorded: Recorded, device: int | None, hovers: bool) -> list[Lane]:
    records = device_records(recorded)
    found: dict[_Key, Lane] = {}
    for record, text in zip(records, _hover_texts(recorded, records, hovers), strict=True):
        for key, label, bars in _placed(record, text):
            if device in (None, key[0]):
                found.setdefault(key, Lane(f"cuda:{key[0]} {label}")).bars.extend(bars)
    times = recorded.host_times
    idle_ns = IDLE_LAUNCHES * times.launch_ns + IDLE_OPS * times.op_ns
    for index in {index for index, _, _ in found}:
        of_device = [record for record in records if isinstance(record, Kernel) and record.device == index]
        spans = _modules(of_device, idle_ns)
        if spans:
            found[index, _MODULES, 0] = Lane(f"cuda:{index} modules", spans)
    for index in {index for index, _, _ in found}:
        keys = sorted(key for key, entry in found.items() if key[:2] == (index, _STREAM) and _only_collectives(entry))
        for number, key in enumerate(keys, 1):
            found[key].label = f"cuda:{index} NCCL" + (f" {number}" if len(keys) > 1 else "")
    return [found[key] for key in sorted(found)]


def _only_collectives(entry: Lane) -> bool:
    return all(bar.kind in ("collective", "waits for ranks") for bar in entry.bars)


def _hover_texts(recorded: Recorded, records: Sequence[Kernel | Transfer | Collective], hovers: bool) -> list[str]:
    if not hovers:
        return [""] * len(records)
    texts = []
    before: dict[tuple[int, int], Kernel | Transfer | Collective] = {}
    for record in records:
        stream = (record.device, record.stream)
        texts.append(hover.ran(record, before.get(stream), measured=not recorded.simulated))
        before[stream] = record
    return texts


def _placed(record: Kernel | Transfer | Collective, text: str) -> list[tuple[_Key, str, list[Bar]]]:
    """The lanes in which a record is drawn: their keys, their labels, and its bars there."""
    if isinstance(record, Transfer):
        bar = Bar(record.start_ns, record.end_ns, "copy", size(record.nbytes), text)
        ends = ((record.target, _COPY_IN, "copy in"), (record.source, _COPY_OUT, "copy out"))
        return [((index, order, 0), label, [bar]) for index, order, label in ends if index is not None]
    return [((record.device, _STREAM, record.stream), f"stream {record.stream}", _stream_bars(record, text))]


def _stream_bars(record: Kernel | Collective, text: str) -> list[Bar]:
    """A kernel's bar; for a collective, one for the wait for other ranks and one for the moving of bytes."""
    if isinstance(record, Kernel):
        return [Bar(record.start_ns, record.end_ns, class_of(record.name), record.name.rpartition("::")[2], text)]
    bars = [Bar(record.joined_ns, record.end_ns, "collective", _moved(record), text)]
    if record.joined_ns > record.start_ns:
        bars.insert(0, Bar(record.start_ns, record.joined_ns, "waits for ranks", "", text))
    return bars


def _moved(record: Collective) -> str:
    """A collective's label; its size is left out if nobody knows it."""
    return f"{record.operation} {size(record.nbytes)}" if record.nbytes else record.operation


def bands(recorded: Recorded, device: int | None, start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The times in which bytes moved between several devices, in the order of their start; none for one device."""
    if device is not None:
        return []
    found = {
        (part.joined_ns, part.end_ns)
        for part in recorded.collectives
        if len(part.ranks) > 1 and part.end_ns >= start_ns and part.joined_ns <= end_ns
    }
    return sorted(found)


def _modules(kernels: list[Kernel], idle_ns: int) -> list[Bar]:
    """The spans of a device's modules; the paths are shortened until there are no more than `MODULES` spans."""
    if not any(kernel.module for kernel in kernels):
        return []
    kernels.sort(key=lambda kernel: kernel.start_ns)
    spans: list[Bar] = []
    for depth in (4, 3, 2, 1):
        spans = _spans(kernels, depth, idle_ns)
        if len(spans) <= MODULES:
            break
    return spans


def _spans(kernels: Iterable[Kernel], depth: int, idle_ns: int) -> list[Bar]:
    spans: list[Bar] = []
    path, waiting = "", 0
    for kernel in kernels:
        kind = "backward" if kernel.backward else "forward"
        if not kernel.module:  # a residual sum, say: it belongs to a span only if the span continues after it
            waiting += 1
            continue
        here = ".".join(kernel.module.split(".")[:depth])
        idle = spans and kernel.start_ns - spans[-1].end_ns > idle_ns and not waiting
        if spans and here == path and spans[-1].kind == kind and not idle:
            spans[-1].end_ns = max(spans[-1].end_ns, kernel.end_ns)
            spans[-1].count += 1 + waiting
        else:
            short = here.partition(".")[2].removeprefix("module.")  # DDP's and DataParallel's name of the model
            short = here if short.isdigit() or not short else short  # "0", within a Sequential, says too little
            spans.append(Bar(kernel.start_ns, kernel.end_ns, kind, short, ""))
            path = here
            spans[-1].hover = hover.module(here, kind)
        waiting = 0
    for span in spans:
        span.hover += hover.lasting(span.end_ns - span.start_ns, span.count)
    return spans


def thinned(all_lanes: Sequence[Lane], limit: int) -> int:
    """Merge short neighbours until there are no more than `limit` bars; return how many were merged.

    Bars are merged within steps as fine as `limit` allows: they could not be distinguished in a figure of that width.
    """
    bars = [bar for lane in all_lanes for bar in lane.bars]
    if len(bars) <= limit:
        return 0
    width = max(max(bar.end_ns for bar in bars) - min(bar.start_ns for bar in bars), 1)
    step = width / limit
    while sum(_count(lane.bars, step) for lane in all_lanes) > limit and step <= width:
        step *= 1.5
    for lane in all_lanes:
        lane.bars = [one for group in _groups(lane.bars, step) for one in _together(group)]
    return sum(bar.count for lane in all_lanes for bar in lane.bars if bar.count > 1)


def _groups(bars: Sequence[Bar], step: float) -> Iterator[list[Bar]]:
    """The bars, cut into neighbours that are together at most as long as a step."""
    group: list[Bar] = []
    for bar in bars:
        if group and bar.end_ns - group[0].start_ns > step:
            yield group
            group = []
        group.append(bar)
    if group:
        yield group


def _count(bars: Sequence[Bar], step: float) -> int:
    """How many bars remain of these."""
    return sum(len({bar.kind for bar in group}) for group in _groups(bars, step))


def _together(group: list[Bar]) -> list[Bar]:
    """One bar of each kind, as long as the bars of that kind together: gaps between them add up to one behind them."""
    if len(group) < 2:
        return group
    kinds: dict[str, list[Bar]] = {}
    for bar in group:
        kinds.setdefault(bar.kind, []).append(bar)
    found: list[Bar] = []
    start, last = group[0].start_ns, max(bar.end_ns for bar in group)
    for kind, several in kinds.items():
        names = Counter(bar.label or bar.kind for bar in several)
        ns, count = sum(bar.end_ns - bar.start_ns for bar in several), sum(bar.count for bar in several)
        end = min(start + ns, last)
        text = hover.together(count, ns, names) if len(several) > 1 else several[0].hover
        found.append(Bar(start, end, kind, "", text, count))
        start = end
    return found
