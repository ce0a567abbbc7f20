"""``fakegpu-lab run``: runs an unmodified program on simulated GPUs, and reports what it did there."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from fakegpu_lab import session
from fakegpu_lab.cli import program, termination
from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.processes import inheritance

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.catalogue.spec import MachineSpec
    from fakegpu_lab.hardware.machine import Clock, Compute
    from fakegpu_lab.hardware.snapshot import Snapshot
    from fakegpu_lab.trace import Trace


class Request(NamedTuple):
    """The command's arguments and options; `plan` shares them."""

    devices: str
    memory: str | None
    compute: Compute
    report: str | None
    chrome: str | None
    quiet: bool
    module: bool
    command: tuple[str, ...]
    clock: Clock = "real"
    code: bool = False
    host: str | None = None


def run(request: Request) -> None:
    """Run the program and exit with its exit status.

    Raises
    ------
    FakeGpuError
        If anything is wrong with the request. The program has not started then.
    """
    spec = parse_spec(request.devices, memory=request.memory, host=request.host)
    for what, path in (("report", request.report), ("timeline", request.chrome)):
        if path is not None and not Path(path).absolute().parent.is_dir():
            raise FakeGpuError(f"The {what} {path} cannot be written: its folder does not exist.")
    session.enable_on_import(
        request.devices, memory=request.memory, compute=request.compute, clock=request.clock, host=request.host
    )
    if not request.quiet:
        from fakegpu_lab.notebook.out_of_memory import postmortem

        session.on_change.append(postmortem.watch)
    loaded = program.load(request.command, module=request.module, code=request.code)
    timeline = _Timeline()
    if request.chrome is not None:
        session.on_change.append(timeline)
    epilogue = _Epilogue(request, spec, timeline)
    os.environ[inheritance.REPORTS] = f"{os.getpid()}:{epilogue.folder}"
    atexit.register(epilogue)  # registered first, so it runs last: after the program's threads and exit handlers
    termination.before(epilogue.terminated)
    try:
        epilogue.status = loaded.execute()
    except SystemExit as end:
        epilogue.status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    sys.exit(epilogue.status)


class _Timeline:
    """A recording of the program's machine, from the moment it is enabled; if there are several, of the last."""

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self._recording = contextlib.ExitStack()

    def __call__(self, machine: Machine | None) -> None:
        """Record the machine that was just enabled (`session.on_change`)."""
        self.end()
        if machine is not None:
            from fakegpu_lab.trace import Trace

            self.trace = self._recording.enter_context(Trace(machine))

    def end(self) -> None:
        """Stop recording."""
        self._recording.close()


class _Epilogue:
    """What is written after the program: the timeline, the report and the table."""

    def __init__(self, request: Request, spec: MachineSpec, timeline: _Timeline) -> None:
        self.request = request
        self.spec = spec
        self.timeline = timeline
        self.status = 0
        self.process = os.getpid()
        self.folder = tempfile.mkdtemp(prefix="fakegpu-lab-")
        self.begun = False

    def terminated(self) -> None:
        """Write everything now, because SIGTERM ends the process."""
        self.status = termination.TERMINATED
        self()

    def __call__(self) -> None:
        if os.getpid() != self.process or self.begun:  # a forked child runs its parent's exit handlers, too
            return
        self.begun = True
        from fakegpu_lab.processes import run_reports
        from fakegpu_lab.ranks.planning import figures
        from fakegpu_lab.report import run_tables

        self.timeline.end()
        snapshot = self._snapshot()
        others = run_reports.collect(Path(self.folder))
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.request.report is not None:
            report = run_tables.RunReport(
                command=self.request.command,
                exit_status=self.status,
                snapshot=snapshot,
                rank=run_reports.identity.rank,
                processes=others,
                plan=figures.current,
            )
            with _write_errors_reported(f"the report {self.request.report}"):
                Path(self.request.report).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
        if self.request.chrome is not None and self.timeline.trace is not None:
            with _write_errors_reported(f"the timeline {self.request.chrome}"):
                self.timeline.trace.to_chrome_trace(self.request.chrome)
        if not self.request.quiet:
            if figures.current is not None:
                from fakegpu_lab.report import plan_table

                _show(plan_table.summary(snapshot, figures.current))
            else:
                _show(run_tables.summary(snapshot, others, run_reports.identity.rank))

    def _snapshot(self) -> Snapshot:
        machine = session.latest()
        if machine is None and "torch" in sys.modules:
            _write(
                sys.__stderr__, "fakegpu-lab: torch did not see the simulated GPUs; `fakegpu-lab doctor` finds out why."
            )
        return (machine or Machine(self.spec, self.request.compute)).snapshot()


@contextlib.contextmanager
def _write_errors_reported(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _write(sys.__stderr__, f"fakegpu-lab: {what} cannot be written: {error.strerror}.")


def _show(table: object) -> None:
    """Print on stdout where people read it; on stderr where a pipe or a file takes the program's output."""
    stdout = sys.__stdout__
    if stdout is not None and not stdout.closed:
        try:
            stdout.flush()  # the table follows what the program printed, even where both go to one file
            if stdout.isatty():
                from rich.console import Console

                Console(file=stdout).print("", table)
                return
        except OSError:  # the reader of the pipe is gone
            return
        # The child of a kernel: graders of notebooks take anything on stderr for an error.
        in_notebook = "JPY_PARENT_PID" in os.environ
        _write(stdout if in_notebook else sys.__stderr__, f"\n{table}")


def _write(stream: TextIO | None, text: str) -> None:
    if stream is not None and not stream.closed:
        with contextlib.suppress(OSError):  # the reader of the pipe is gone
            print(text, file=stream, flush=True)
