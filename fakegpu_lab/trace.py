"""`record()`: a recording of what happened on the simulated GPUs, to look at or to assert on."""

from __future__ import annotations

import html
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.formatting.units import duration, percent, several
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.recorder import Recorder
from fakegpu_lab.hardware.time.records import LIMIT
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping
    from pathlib import Path

    from typing_extensions import Self

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


class Trace:
    """Everything that happened between the start and the end of a recording. Made by `record`.

    Times are seconds of simulated time. Ending a recording does not wait for the GPU: a kernel that was launched and
    has not run yet is in the trace, at the time at which it will run.
    """

    def __init__(self, machine: Machine, limit: int = LIMIT) -> None:
        if not hasattr(limit, "__index__") or limit < 0:
            raise FakeGpuError(
                f"record(limit={limit!r}): the number of records to keep must be a whole number, 0 or more; record() "
                f"keeps {LIMIT:,} of each kind."
            )
        self.machine = machine
        from fakegpu_lab.driver.recorder import recording  # imports torch, so only here

        self._recorder = Recorder(recording.note, recording.notes, here.host.now, limit)
        self._ended: int | None = None

    @interrupts.whole
    def __enter__(self) -> Self:
        from fakegpu_lab.driver.recorder import recording

        self._recorder.began_ns = here.host.now
        for device in self.machine.devices:
            self._recorder.peaks[device.index] = device.allocator.allocated_bytes
            self._recorder.begin_with(device.index, device.allocator.in_use())
        recording.start(self.machine, self._recorder)
        return self

    @interrupts.whole
    def __exit__(self, *exception: object) -> None:
        from fakegpu_lab.driver.memory_report import categories
        from fakegpu_lab.driver.recorder import recording, running_modules

        self._recorder.categories = categories.of_models(self.machine, *running_modules.seen())
        recording.stop(self.machine, self._recorder)
        self._ended = here.host.now
        self._recorder.finish(self._ended)

    @property
    def kernels(self) -> list[Kernel]:
        """Every kernel, in the order of their launch."""
        return self._recorder.kernels

    @property
    def transfers(self) -> list[Transfer]:
        """Every copy between host and device or between devices, in the order of their launch."""
        return self._recorder.transfers

    @property
    def collectives(self) -> list[Collective]:
        """Every operation between ranks, once for each rank that took part."""
        return self._recorder.collectives

    @property
    def allocations(self) -> list[Allocation]:
        """Every block of device memory that was allocated while recording."""
        return self._recorder.allocations

    @property
    def held_before(self) -> list[Allocation]:
        """What tensors held when the recording began, as allocations that begin with it."""
        return self._recorder.held_before

    @property
    def waits(self) -> list[Wait]:
        """Every time that a host thread waited for a device."""
        return self._recorder.waits

    @property
    def races(self) -> list[Race]:
        """Uses of the same memory by two streams without a `wait_stream` or an event that orders them.

        A host that uses a tensor before the ``.to("cpu", non_blocking=True)`` that fills it is finished is a race, too.
        ``print(trace.races[0])`` names both lines. Races are found by order, not by time, so they are found even if
        the simulated times happen to be harmless.
        """
        return self._recorder.races

    @property
    def first_uses(self) -> list[FirstUse]:
        """What was used for the first time (CUDA, a library, a convolution's shape, a group of ranks), and its time.

        Clocks show that time (`clock`, events), but the recording's axis, on which it would hide everything, does not.
        """
        return self._recorder.first_uses

    @property
    def host_work(self) -> list[HostWork]:
        """Every period in which a host thread was busy, as with `host_work`."""
        return self._recorder.host_work

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Totals of kernels, copies and collectives by (device, name), exact even if records were dropped."""
        return self._recorder.totals

    @property
    def dropped(self) -> Counter[str]:
        """The number of records of each kind that were dropped because the recording was full."""
        return self._recorder.dropped

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it and every device finished its work."""
        return (self.ended_ns - self.began_ns) / 1e9

    @property
    def began_ns(self) -> int:
        """When the recording began, ns."""
        return self._recorder.began_ns

    @property
    def ended_ns(self) -> int:
        """When the host had ended the recording and every device had done its work, ns."""
        return max(self._recorder.last_ns, self._now())

    @property
    def host_elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it."""
        return (self._now() - self._recorder.began_ns) / 1e9

    def _now(self) -> int:
        return here.host.now if self._ended is None else self._ended

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
        return self._recorder.peaks.get(device, 0)

    def _check(self, device: int) -> None:
        count = len(self.machine.devices)
        if not 0 <= device < count:
            last = f"0 to {count - 1}" if count > 1 else "0 alone"
            raise FakeGpuError(f"There is no device {device}: the machine {self.machine.spec.text!r} has {last}.")

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

    def memory_figure(
        self,
        device: int = 0,
        against: Trace | None = None,
        labels: tuple[str, str] = ("this recording", "the other"),
        theme: str | None = None,
    ) -> Any:
        """Draw the allocations: every tensor a band over the sequence of allocations and frees, with its line.

        Parameters
        ----------
        device
            Whose memory.
        against
            Another recording, drawn next to this one to the same scale.
        labels
            What the two are called.
        theme
            ``"light"`` or ``"dark"``; by default JupyterLab's own colors, and elsewhere plotly's default template.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        from fakegpu_lab.recording_views.figures import allocations

        views = {labels[0]: self.memory(device)}
        if against is not None:
            views[labels[1]] = against.memory(device)
        return allocations.figure(views, theme)

    def memory(self, device: int = 0) -> Allocations:
        """The allocations of a device as plain records, for pictures and tables of your own."""
        from fakegpu_lab.recording_views.allocations import allocations

        self._check(device)
        return allocations(self, device)

    def at_peak(self, device: int = 0, top: int | None = 10) -> Table:
        """The tensors that were in memory at the peak, similar ones together, with the lines that made them."""
        from fakegpu_lab.recording_views import peak

        return peak.table(self.memory(device), top)

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
        parts = [f"{duration(whole)} of simulated time"]
        for device, took in before.items():
            busy = self.busy(device) * 1e9 + took - ahead
            least = "at least " if self.dropped["kernels"] else ""
            parts.append(f"cuda:{device} busy {least}{duration(busy)} ({percent(busy, whole)})")
        if ahead:
            parts.append(f"the host began {duration(ahead)} before that, while the GPU still did earlier work")
        if first := self._recorder.first_use_ns:
            parts.append(f"first uses took the host {duration(first)} more")
        waited = sum(wait.end_ns - wait.start_ns for wait in self.waits)
        if waited:
            parts.append(f"the host waited {duration(waited)}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        from fakegpu_lab.recording_views import tables

        races = f", {several(len(self.races), 'race')}: see trace.races" if self.races else ""
        return f"<Trace of {self.elapsed * 1e3:.3f} ms: {tables.counted(self)}{races}>"

    def _repr_html_(self) -> str:
        hint = "<code>.figure()</code> draws it; <code>.summary()</code>, <code>.by_line()</code> name the slowest"
        return f"{html.escape(repr(self)[1:-1])}<br><small>{hint}</small>"


def record(limit: int = LIMIT) -> Trace:
    """Record what the machine does: ``with lab.record() as trace: …``.

    Parameters
    ----------
    limit
        How many records of each kind (kernels, transfers, …) are kept; the totals stay exact beyond that.

    Raises
    ------
    FakeGpuError
        No machine is enabled.
    """
    return Trace(session.machine(), limit)
