"""The last stretch of the run as a timeline, recorded only now and then, so that it costs almost nothing.

It is one whole step if an optimizer steps, and otherwise what a cell does last. Its allocations are what
`Trace.memory_figure` draws, in bounded size.
"""

from __future__ import annotations

from collections import Counter, deque
from time import process_time, thread_time
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fakegpu_lab.driver.recorder import recording
from fakegpu_lab.notebook.telemetry.messages import CollectiveTotal, DeviceAllocations, Lane, Timeline
from fakegpu_lab.recording_views import peak
from fakegpu_lab.recording_views.bands import bands, columns
from fakegpu_lab.recording_views.lanes import Bar, lanes, thinned
from fakegpu_lab.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.records import Collective
    from fakegpu_lab.notebook.telemetry.messages import Band as Row
    from fakegpu_lab.recording_views.allocations import Allocations, Frame
    from fakegpu_lab.recording_views.bands import Band


RECORDS = 4_000
"""The most kernels of a window; of a longer step, only the beginning is recorded."""

BARS = 500
"""The most bars that are sent."""

TOP = 8
"""The ops that are named in a window's table; one more row sums up the others."""

SHARE = 0.003
"""The share of the process's processor time that recording may take."""

SECONDS = 60e-6
"""The approximate cost of recording and drawing a kernel."""

ALLOCATIONS_SHARE = 0.001
"""The share of the process's processor time that allocations of windows may take while a cell runs."""

EARLIER = "earlier work"
"""The kind of a bar: what was launched before the window, and is not recorded."""

COLLECTIVES = 5_000
"""How many of the last collectives are summed up."""


class Windows:
    """Records windows of a machine's run.

    Attributes
    ----------
    trace
        The last complete window; None before the first.
    collectives
        The collectives of all windows.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.trace: Trace | None = None
        self.collectives: deque[Collective] = deque(maxlen=COLLECTIVES)
        self._drawn: Timeline | None = None
        self._allocated: tuple[int, tuple[DeviceAllocations, ...]] = (0, ())
        self._allocate_after = 0.0
        self._title = ""
        self._open: Trace | None = None
        self._ends: dict[int, int] = {}
        self._queued: dict[int, int] = {}  # by device: until when its default stream does what was launched before
        self._step = 0
        self._number = 0
        self._not_before = 0.0

    def begin(self) -> None:
        """Record from the beginning of a cell to its first step, whatever was spent on recording before."""
        self._not_before = 0.0
        self._try_open()

    def stepped(self, step: int) -> None:
        """End the window at an optimizer's step; another may begin."""
        self._close(f"Step {step}")
        self._step = step
        self._try_open()

    def end(self) -> None:
        """End the window at the end of a cell.

        What follows a step takes its place only if CUDA graphs launched it: a graph's replay has no optimizer's step.
        """
        self._close("After the last step" if self._step else "The last cell", small=not self._step)

    def stop(self) -> None:
        """Stop recording."""
        if self._open is not None:
            self._open.__exit__()
            self._open = None

    def _try_open(self) -> None:
        if self._open is None and process_time() >= self._not_before and not recording.recorded():
            self._ends = {device.index: device.default_stream.end for device in self.machine.devices}
            self._open = Trace(self.machine, RECORDS)
            self._open.__enter__()

    def _close(self, title: str, *, small: bool = True) -> None:
        trace = self._open
        if trace is None:
            return
        self._open = None
        trace.__exit__()
        count = sum(total.count for total in trace.totals.values())
        self._not_before = process_time() + count * SECONDS / SHARE
        self.collectives.extend(trace.collectives)
        if count and (small or self.trace is None or _replayed(trace)):
            self._number += 1
            self.trace, self._title, self._queued = trace, title, self._ends

    @property
    def timeline(self) -> Timeline | None:
        """The last window as a timeline; it is made on request."""
        trace, title, number = self.trace, self._title, self._number
        if trace is not None and (self._drawn is None or self._drawn.number != number):
            self._drawn = _timeline(trace, title, number, self._queued)
        return self._drawn

    def allocations(self, *, busy: bool) -> tuple[int, tuple[DeviceAllocations, ...]]:
        """The allocations of the last window, and its number; while a cell is `busy`, maybe of an earlier one."""
        trace, title, number = self.trace, self._title, self._number
        if trace is not None and self._allocated[0] != number and (not busy or process_time() >= self._allocate_after):
            began = thread_time()
            self._allocated = number, device_allocations(trace, title)
            self._allocate_after = process_time() + (thread_time() - began) / ALLOCATIONS_SHARE
        return self._allocated


def _replayed(trace: Trace) -> bool:
    """Whether most kernels were launched together with others."""
    launched = Counter((kernel.thread, kernel.launched_ns) for kernel in trace.kernels)
    return sum(count for count in launched.values() if count > 1) > 0.5 * len(trace.kernels)


def _timeline(trace: Trace, title: str, number: int, queued: Mapping[int, int]) -> Timeline:
    rows = lanes(trace, None, trace.began_ns, trace.ended_ns, hovers=False)
    earlier = {device: end - trace.began_ns for device, end in queued.items() if end > trace.began_ns}
    lanes_of = {f"cuda:{device} stream 0": ns for device, ns in earlier.items()}
    for row in rows:
        if row.label in lanes_of:  # else the GPU would seem to be idle until then
            row.bars.insert(0, Bar(trace.began_ns, trace.began_ns + lanes_of[row.label], EARLIER, "", ""))
    thinned(rows, BARS)
    totals = sorted(trace.totals.items(), key=lambda item: -item[1].ns)
    top = [(device, name, total.count, total.ns) for (device, name), total in totals[:TOP]]
    if rest := [total for _, total in totals[TOP:]]:
        top.append((-1, f"{len(rest)} more", sum(total.count for total in rest), sum(total.ns for total in rest)))
    return Timeline(
        number=number,
        title=f"{title}: {trace.described(earlier)}",
        began_ns=trace.began_ns,
        free_ns=trace.began_ns + min((earlier.get(device, 0) for device, _ in trace.totals), default=0),
        ended_ns=trace.ended_ns,
        lanes=tuple(
            Lane(label=row.label, bars=tuple((bar.start_ns, bar.end_ns, bar.kind, bar.label) for bar in row.bars))
            for row in rows
        ),
        top=tuple(top),
    )


def totals(collectives: Iterable[Collective]) -> tuple[CollectiveTotal, ...]:
    """Sum up collectives by operation and group: the time on the wire, and how long each device waited before."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[Collective]] = {}
    for record in collectives:
        groups.setdefault((record.operation, record.group, record.ranks), []).append(record)
    found = []
    for (name, group, ranks), records in sorted(groups.items()):
        ns = sum(record.end_ns - record.joined_ns for record in records)
        weighed = sum(record.bus_bandwidth * (record.end_ns - record.joined_ns) for record in records)
        waited: dict[int, int] = {}
        for record in records:
            waited[record.device] = waited.get(record.device, 0) + record.joined_ns - record.start_ns
        each = max(len({record.device for record in records}), 1)
        found.append(
            CollectiveTotal(
                operation=name, group=group, ranks=ranks, count=round(len(records) / each),
                nbytes=sum(record.nbytes for record in records) // each, ns=ns // each,
                bus_bandwidth=weighed / ns if ns else 0.0, waited_ns=waited,
            )
        )  # fmt: skip
    return tuple(found)


Steps: TypeAlias = "NDArray[np.int64]"

BANDS, COLUMNS = 160, 480
"""The most bands and columns of all devices together, but at least a sixth of them each."""

GROUPS, FRAMES = 12, 6
"""The most rows of what made the peak, and lines of a stack."""


def device_allocations(trace: Trace, title: str) -> tuple[DeviceAllocations, ...]:
    """The allocations of every device that tensors were on."""
    found = [(device.slot, trace.memory(device.index)) for device in trace.machine.devices]
    used = [(slot, memory) for slot, memory in found if memory.tensors]
    part = min(6, max(1, len(used)))
    return tuple(
        _of_device(slot, memory, title, trace.began_ns, BANDS // part, COLUMNS // part) for slot, memory in used
    )


def _of_device(slot: int, found: Allocations, title: str, began_ns: int, most: int, wide: int) -> DeviceAllocations:
    drawn = np.array(columns(found, wide))
    lines: dict[str, int] = {}
    groups = peak.groups(found)
    shown, rest = groups[:GROUPS], groups[GROUPS:]
    if rest:
        nbytes, tensors = sum(group.nbytes for group in rest), sum(group.tensors for group in rest)
        shown.append(peak.Group(nbytes, tensors, "", "", "", ""))
    return DeviceAllocations(
        slot=slot,
        title=title,
        said=peak.sentence(found, began_ns),
        peak=found.peak,
        peak_step=found.peak_step,
        steps=found.steps,
        columns=tuple(drawn.tolist()),
        bands=tuple(row for band in bands(found, most) if (row := _row(band, drawn, lines))[-1]),
        lines=tuple(lines),
        phases=tuple((region.name, region.first, region.last) for region in found.phases),
        modules=tuple((region.name, region.first, region.last) for region in found.modules),
        groups=tuple(shown),
    )


def _row(band: Band, drawn: Steps, lines: dict[str, int]) -> Row:
    largest = max(band.tensors, key=lambda tensor: tensor.nbytes)
    changes = _changes(band, drawn)
    if not band.own:
        return band.category, len(band.tensors), largest.nbytes, "", "", "", "", -1, (), changes
    stack = tuple(lines.setdefault(_text(frame), len(lines)) for frame in largest.stack[:FRAMES])
    held = largest.end_ns - largest.start_ns if largest.freed else -1
    shape = peak.shape_of(largest)
    return band.category, 1, largest.nbytes, shape, largest.op, largest.module, largest.phase, held, stack, changes


def _text(frame: Frame) -> str:
    return f"{frame.line}  {frame.text}".strip()


def _changes(band: Band, drawn: Steps) -> tuple[tuple[int, int], ...]:
    """The band's changes from one drawn column to the next."""
    found = band.changes
    places = np.searchsorted(drawn, [step for step, _ in found]).tolist()
    sums: dict[int, int] = {}
    for place, (_, nbytes) in zip(places, found, strict=True):
        if place < len(drawn):
            sums[place] = sums.get(place, 0) + nbytes
    return tuple((place, nbytes) for place, nbytes in sorted(sums.items()) if nbytes)
