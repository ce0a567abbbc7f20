"""The reports that the processes of a ``fakegpu-lab run`` leave for it.

`run` names a folder in the environment. Each process that used its GPUs writes a file into it when it ends. A process
that takes part in collectives also writes from time to time, so that there is a report even if it is killed.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot  # noqa: TC001 - pydantic reads the annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.machine import Machine

_REFRESH_SECONDS = 0.5
"""Wall-clock time between two reports of a running process: it decides only how old a killed process's report is."""


class ProcessReport(BaseModel):
    """One process of a run, at its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="rank 3; or what multiprocessing calls it")
    rank: int | None = None
    world_size: int | None = None
    attempt: int = Field(default=0, description="how often torchrun had started it again")
    ended: bool = Field(description="false: it was killed, and this is how it was at one of its last collectives")
    snapshot: Snapshot

    @property
    def devices(self) -> tuple[DeviceSnapshot, ...]:
        """The devices that it used."""
        return used(self.snapshot)


def used(snapshot: Snapshot) -> tuple[DeviceSnapshot, ...]:
    """The devices with memory or counters in use."""
    return tuple(
        device for device in snapshot.devices if device.memory.peak_reserved or any(dict(device.counters).values())
    )


class _Reporter:
    """Writes the report of the calling process."""

    def __init__(self, folder: str, machine: Callable[[], Machine | None]) -> None:
        self.path = Path(folder) / f"{os.getpid()}.json"
        self.machine = machine
        self.process = os.getpid()
        self.last_write = 0.0

    def write(self, *, ended: bool) -> None:
        if os.getpid() != self.process:  # a forked child runs its parent's exit handlers
            return
        machine = self.machine()
        if machine is None or not (machine.devices and self.path.parent.is_dir()):
            return
        snapshot = machine.snapshot()
        if not used(snapshot) and identity.rank is None:
            return
        report = ProcessReport(
            name=multiprocessing.current_process().name if identity.rank is None else f"rank {identity.rank}",
            rank=identity.rank,
            world_size=identity.world_size,
            attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            ended=ended,
            snapshot=snapshot,
        )
        new = self.path.with_suffix(".new")
        with contextlib.suppress(OSError):  # the run is over, or its disk is full
            new.write_text(report.model_dump_json(), encoding="utf-8")
            new.replace(self.path)


class _Identity:
    """The rank of this process, if it has one."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.world_size: int | None = None

    def join(self, rank: int, world_size: int) -> None:
        """Take the rank from the default process group: launchers differ in the variables that they set."""
        if world_size > 1:
            self.rank, self.world_size = rank, world_size

    def guess(self) -> None:
        """Take the rank from torchrun's environment variables, unless this process is itself a child of a rank."""
        rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if rank.isdigit() and size.isdigit() and multiprocessing.parent_process() is None:
            self.rank, self.world_size = int(rank), int(size)


identity = _Identity()
_reporter: _Reporter | None = None


def report_to(folder: str, machine: Callable[[], Machine | None]) -> None:
    """Let this process write its report to `folder` when it ends."""
    global _reporter
    if _reporter is None:
        identity.guess()
        _reporter = _Reporter(folder, machine)
        atexit.register(_reporter.write, ended=True)


def progress() -> None:
    """Write an intermediate report, unless the last one is recent."""
    if _reporter is not None and time.monotonic() - _reporter.last_write > _REFRESH_SECONDS:
        _reporter.write(ended=False)
        _reporter.last_write = time.monotonic()


def collect(folder: Path) -> tuple[ProcessReport, ...]:
    """Read a folder's reports: first the ranks in order (of a restarted rank, the last attempt), then the others."""
    found: list[ProcessReport] = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(ProcessReport.model_validate_json(path.read_text(encoding="utf-8")))
    ranks = {report.rank: report for report in sorted(found, key=lambda report: report.attempt)}
    others = sorted((report for report in found if report.rank is None), key=lambda report: report.name)
    return (*(ranks[rank] for rank in sorted(rank for rank in ranks if rank is not None)), *others)
