"""`Recording`: what happened on GPUs, to look at or to assert on, whether they are simulated or real.

`record` makes one of simulated GPUs (`Trace`), and `open` one of what a real card's profiler wrote.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.formatting.units import duration, percent, several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from pathlib import Path

    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.happens_before import Race
    from fakegpu_lab.hardware.time.records import (
        Allocation,
        Collective,
        FirstUse,
        HostWork,
        Kernel,
        Total,
        Transfer,
        Wait,
    )
    from fakegpu_lab.recording_views.allocations import Allocations
    from fakegpu_lab.recording_views.recorded import HostTimes, Records


class MemoryViews(ABC):
    """The views of memory, of a recording or of a snapshot.

    Attributes
    ----------
    called
        What a figure calls it, beside another one.
    """

    called: str

    @abstractmethod
    def memory(self, device: int = 0) -> Allocations:
        """The allocations of a device as plain records, for pictures and tables of your own."""

    def memory_figure(
        self,
        device: int = 0,
        against: MemoryViews | None = None,
        labels: tuple[str, str] | None = None,
        theme: str | None = None,
    ) -> Any:
        """Draw the allocations: every tensor a band over the sequence of allocations and frees, with its line.

        Parameters
        ----------
        device
            Whose memory.
        against
            Another recording or snapshot, drawn next to this one to the same scale.
        labels
            What the two are called.
        theme
            ``"light"`` or ``"dark"``; by default JupyterLab's own colors, and elsewhere plotly's default template.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        from fakegpu_lab.recording_views.figures import allocations

        mine, other = labels or (self.called, "the other")
        views = {mine: self.memory(device)}
        if against is not None:
            views[other] = against.memory(device)
        return allocations.figure(views, theme)

    def at_peak(self, device: int = 0, top: int | None = 10) -> Table:
        """The tensors that were in memory at the peak, similar ones together, with the lines that made them."""
        from fakegpu_lab.recording_views import peak

        return peak.table(self.memory(device), top)


class Recording(MemoryViews):
    """Everything that happened between the start and the end of a recording.

    Times are seconds, on the recording's own clock.
    """

    called = "this recording"

    def __init__(self, records: Records) -> None:
        self._records = records

    @property
    @abstractmethod
    def machine(self) -> Machine | None:
        """The simulated machine; None if the recording was opened from a file."""

    @property
    @abstractmethod
    def simulated(self) -> bool:
        """Whether its times are simulated, and not measured."""

    @property
    @abstractmethod
    def cards(self) -> Mapping[int, str]:
        """The names of the devices, by their ordinals."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """What was recorded: the simulated machine, as `enable` names it, or the file."""

    @property
    @abstractmethod
    def host_times(self) -> HostTimes:
        """What launches take the host."""

    @property
    @abstractmethod
    def _host_ended_ns(self) -> int:
        """When the host ended the recording."""

    @abstractmethod
    def _lasted(self, ns: int) -> str:
        """How long it took, and in whose time: the beginning of the sentence that describes it."""

    @abstractmethod
    def _has_devices(self) -> str:
        """Which devices there are: the end of a sentence about one that is not there."""

    @property
    def kernels(self) -> list[Kernel]:
        """Every kernel, in the order of their launch."""
        return self._records.kernels

    @property
    def transfers(self) -> list[Transfer]:
        """Every copy between host and device or between devices, in the order of their launch."""
        return self._records.transfers

    @property
    def collectives(self) -> list[Collective]:
        """Every operation between ranks, once for each rank that took part."""
        return self._records.collectives

    @property
    def allocations(self) -> list[Allocation]:
        """Every block of device memory that was allocated while recording."""
        return self._records.allocations

    @property
    def held_before(self) -> list[Allocation]:
        """What tensors held when the recording began, as allocations that begin with it."""
        return self._records.held_before

    @property
    def waits(self) -> list[Wait]:
        """Every time that a host thread waited for a device."""
        return self._records.waits

    @property
    def races(self) -> list[Race]:
        """Uses of the same memory by two streams without a `wait_stream` or an event that orders them.

        A host that uses a tensor before the ``.to("cpu", non_blocking=True)`` that fills it is finished is a race, too.
        ``print(trace.races[0])`` names both lines. Races are found by order, not by time, so they are found even if
        the simulated times happen to be harmless.
        """
        return self._records.races

    @property
    def first_uses(self) -> list[FirstUse]:
        """What was used for the first time (CUDA, a library, a convolution's shape, a group of ranks), and its time.

        Clocks show that time (`clock`, events), but the recording's axis, on which it would hide everything, does not.
        """
        return self._records.first_uses

    @property
    def host_work(self) -> list[HostWork]:
        """Every period in which a host thread was busy, as with `host_work`."""
        return self._records.host_work

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Totals of kernels, copies and collectives by (device, name), exact even if records were dropped."""
        return self._records.totals

    @property
    def dropped(self) -> Counter[str]:
        """The number of records of each kind that were dropped because the recording was full."""
        return self._records.dropped

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it and every device finished its work."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def began_ns(self) -> int:
        """When the recording began, ns."""
        return self._records.began_ns

    @property
    def ended_ns(self) -> int:
        """When the host had ended the recording and every device had done its work, ns."""
        return max(self._records.last_ns, self._host_ended_ns)

    @property
    def host_elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it."""
        return (self._host_ended_ns - self._records.began_ns) / 1e9

    def busy(self, device: int = 0) -> float:
        """Seconds in which a kernel or a collective ran on a device; a collective that waits for other ranks counts."""
        self._check(device)
        total, until = 0, self.began_ns  # a rank that was behind may have launched before that
        for kernel in sorted((*self.kernels, *self.collectives), key=lambda k: k.start_ns):
            if kernel.device == device and kernel.end_ns > until:
                total += kernel.end_ns - max(kernel.start_ns, until)
                until = kernel.end_ns
        return total / 1e9

    def peak_memory(self, device: int = 0) -> int:
        """The most bytes that tensors held on a device while recording, as torch.cuda.max_memory_allocated counts."""
        self._check(device)
        return self._records.peaks.get(device, 0)

    def _check(self, device: int) -> None:
        if device not in self.cards:
            raise FakeGpuError(f"There is no device {device}: {self._has_devices()}.")

    def summary(self, sort_by: str = "time", top: int | None = 20) -> Table:
        """What ran on the devices: one row for each kernel or copy by name, like ``key_averages`` of torch's profiler.

        The figures are exact even if records were dropped.

        Parameters
        ----------
        sort_by
            ``"time"``, ``"mean"``, ``"calls"``, ``"flops"``, ``"bytes"``, ``"bandwidth"`` or ``"name"``.
        top
            How many rows per device; one more row sums up the others. None: all.
        """
        from fakegpu_lab.advice.kernels import launch_bound
        from fakegpu_lab.recording_views import tables

        table = tables.summary(self, self.described(), sort_by, top)
        notes = [*([table.note] if table.note else []), *map(str, launch_bound(self))]
        return replace(table, note="\n".join(notes))

    def by_line(self, top: int | None = 20) -> Table:
        """The source lines that took most of the devices' time, and how long the host waited in them."""
        from fakegpu_lab.recording_views import tables

        return tables.by_line(self, top)

    def by_module(self, depth: int | None = None, top: int | None = 20) -> Table:
        """The modules that took most of the time, forward and backward; `depth` limits the parts of their paths."""
        from fakegpu_lab.recording_views import tables

        return tables.by_module(self, depth, top)

    def figure(
        self, device: int | None = None, start: float | None = None, end: float | None = None, theme: str | None = None
    ) -> Any:
        """Draw the timeline: the host's threads, the devices' streams and copy engines, the memory below.

        Parameters
        ----------
        device
            Draw only this device.
        start, end
            Draw only this part: seconds since the recording began, as the figure's axis shows.
        theme
            ``"light"`` or ``"dark"``; by default JupyterLab's own colors, and elsewhere plotly's default template.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        from fakegpu_lab.recording_views.figures import timeline

        if device is not None:
            self._check(device)
        return timeline.figure(self, self.described(), device, start, end, theme)

    def memory(self, device: int = 0) -> Allocations:
        """The allocations of a device as plain records, for pictures and tables of your own."""
        from fakegpu_lab.recording_views.allocations import allocations

        self._check(device)
        return allocations(self, device)

    def to_chrome_trace(self, path: str | Path) -> Path:
        """Write a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing, and return its path.

        It is compressed if the path ends in ``.gz``.
        """
        from fakegpu_lab.recording_views import chrome

        return chrome.write(self, path)

    def described(self, earlier: Mapping[int, int] | None = None) -> str:
        """One line: how long it took, how busy the devices were, how long the host waited.

        `earlier` has, by device, ns of work launched before; the described time begins when a device is done with it.
        """
        before = {device: (earlier or {}).get(device, 0) for device, _ in sorted(self.totals)}
        ahead = min(before.values(), default=0)
        whole = self.ended_ns - self.began_ns - ahead
        parts = [self._lasted(whole)]
        for device, took in before.items():
            busy = self.busy(device) * 1e9 + took - ahead
            least = "at least " if self.dropped["kernels"] else ""
            parts.append(f"cuda:{device} busy {least}{duration(busy)} ({percent(busy, whole)})")
        if ahead:
            parts.append(f"the host began {duration(ahead)} before that, while the GPU still did earlier work")
        if first := self._records.first_use_ns:
            parts.append(f"first uses took the host {duration(first)} more")
        begins = self.began_ns + ahead
        waited = sum(max(wait.end_ns - max(wait.start_ns, begins), 0) for wait in self.waits)
        if waited:
            parts.append(f"the host waited {duration(waited)}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        from fakegpu_lab.recording_views import tables

        races = f", {several(len(self.races), 'race')}: see trace.races" if self.races else ""
        return f"<{type(self).__name__} of {self.elapsed * 1e3:.3f} ms: {tables.counted(self)}{races}>"

    def _repr_html_(self) -> str:
        hint = "<code>.figure()</code> draws it; <code>.summary()</code>, <code>.by_line()</code> name the slowest"
        return f"{html.escape(repr(self)[1:-1])}<br><small>{hint}</small>"
