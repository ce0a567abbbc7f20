"""``%%gpuprofile``: what a cell did on the simulated GPUs, and which of its lines took the most time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class, output_can_be_silenced
from IPython.core.magic_arguments import argument, magic_arguments
from IPython.display import display

from fakegpu_lab import session, trace
from fakegpu_lab.advice.kernels import launch_bound
from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import duration, several
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.recording_views.figures.plotly_needed import need_plotly
from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.recording_views.tables import line_sums
from fakegpu_lab.user_code import cell_code, magic_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import SimpleNamespace

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.recording import Recording
    from fakegpu_lab.recording_views.tables import LineSum


@magics_class
class GpuProfileMagics(Magics):
    """The ``%%gpuprofile`` magic."""

    @magic_arguments()
    @argument("--no-figure", action="store_true", help="draw no timeline")
    @argument("--top", type=int, default=5, metavar="N", help="how many source lines to name (default: 5)")
    @argument("--chrome", metavar="PATH", help="write a file that Perfetto and chrome://tracing open, too")
    @output_can_be_silenced
    @cell_magic
    def gpuprofile(self, line: str, cell: str) -> Any:
        """Run this cell and show what the simulated GPUs did, and which lines took the most time.

        %%gpuprofile                        one line, the timeline, the five lines that took the most time
        %%gpuprofile --no-figure --top 9    without the timeline, with nine lines
        %%gpuprofile --chrome step.json     also as a file for https://ui.perfetto.dev
        """
        __tracebackhide__ = True
        args = magic_line.parse(self.gpuprofile, line)
        if args.top < 0:
            raise UsageError(f"--top {args.top}: the number of lines cannot be negative.")
        try:
            recording = trace.record()
        except FakeGpuError as error:
            raise UsageError(str(error)) from None
        parsed = cell_code.parse(self.shell, cell)
        names: dict[str, Any] = getattr(self.shell, "user_ns")  # noqa: B009 - the shell is never None here
        if isinstance(recording, trace.Trace):
            _wait_for(recording.machine)
        try:
            with recording:
                return cell_code.run(self.shell, parsed, names)
        finally:
            self._show(recording, parsed.name, args)

    def _show(self, recording: Recording, name: str, args: SimpleNamespace) -> None:
        print(recording.described())
        for finding in launch_bound(recording):
            print(finding)
        if not recording.totals:
            print("Nothing ran on a real GPU." if session.watched() is not None else "Nothing ran on a simulated GPU.")
        elif not args.no_figure:
            self._draw(recording)
        if args.top and (lines := _lines(recording, name, args.top)).rows:
            display(lines)
        if args.chrome:
            try:
                print(f"Written for https://ui.perfetto.dev: {recording.to_chrome_trace(args.chrome)}")
            except OSError as error:
                print(f"{args.chrome} could not be written: {error.strerror}.")

    def _draw(self, recording: Recording) -> None:
        """Show the figure, or the table where no figure can be shown."""
        if getattr(self.shell, "kernel", None) is None:  # at IPython's prompt, plotly would open a browser
            print(recording.summary(top=10))
            return
        try:
            need_plotly()
            import nbformat  # noqa: F401 - plotly shows nothing without it

            display(recording.figure().without_title())
        except (FakeGpuError, ImportError):
            print(recording.summary(top=10))
            print("(pip install plotly nbformat draws a timeline here.)")


def _wait_for(machine: Machine) -> None:
    """Let the host wait for what earlier cells launched: it is not this cell's."""
    for device in machine.devices:
        recorder = device.timeline.recorder
        if recorder is not None:  # a panel's, which shows what the host does meanwhile
            recorder.wait(here.host, device.index, device.end, "%%gpuprofile")
        here.host.wait(device.end)


def _lines(recording: Recording, name: str, top: int) -> Table:
    """The source lines that took the most time of a device or of the host, and the others together.

    Kernels and copies apart: the time in which a device is busy is that of kernels and collectives, as in `Trace.busy`.
    """
    sums = line_sums(recording)
    named = [line for line in sums if line]
    named.sort(key=lambda line: -max(sums[line].ns, sums[line].waited_ns))
    rows = []
    for line in named[:top]:
        file, _, number = line.rpartition(":")
        found = place(line)
        rows.append((f"line {number}" if file == name else found.label, *_times([sums[line]]), found.text))
    rest = [entry for line, entry in sums.items() if line not in named[:top]]
    if rows and rest:
        rows.append((several(len(rest), "more line"), *_times(rest), ""))
    busy = sum(recording.busy(device) for device in {device for device, _ in recording.totals}) * 1e9
    overlap = sum(entry.ns - entry.copies_ns for entry in sums.values()) - busy
    note = f"Kernels of several streams ran at the same time, for {duration(overlap)} in total." if overlap > 1 else ""
    headers = ("where", "kernels", "copies", "host waited", "code")
    return Table(headers, rows, numbers=frozenset({1, 2, 3}), note=note, code=frozenset({4}))


def _times(entries: Sequence[LineSum]) -> tuple[str, str, str]:
    """The time of their kernels, of their copies, and how long the host waited in them; nothing for none."""
    kernels = sum(entry.ns - entry.copies_ns for entry in entries)
    copies = sum(entry.copies_ns for entry in entries)
    waited = sum(entry.waited_ns for entry in entries)
    return _time(kernels), _time(copies), _time(waited)


def _time(ns: float) -> str:
    return duration(ns) if ns else ""
