"""What the processes of a run tell the ``fakegpu-lab run`` that started them: one report for all ranks.

`run` leaves a folder in the environment. A process that was started there and used its GPUs writes a file into it when
it ends; one that takes part in collectives writes now and then, so that something is known of it if it is killed.
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
"""Between two files of a process that is at work, by the wall clock: it decides only how old is what a killed one
leaves."""


class ProcessReport(BaseModel):
    """One process of a run, as it was at its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="rank 3; or what multiprocessing calls it")
    rank: int | None = None
    world_size: int | None = None
    attempt: int = Field(default=0, description="how often torchrun had started it again")
    ended: bool = Field(description="false: it was killed, and this is how it was at one of its last collectives")
    snapshot: Snapshot

    @property
    def devices(self) -> tuple[DeviceSnapshot, ...]:
        """Those that it used."""
        return used(self.snapshot)


def used(snapshot: Snapshot) -> tuple[DeviceSnapshot, ...]:
    """The devices on which something was done."""
    return tuple(
        device for device in snapshot.devices if device.memory.peak_reserved or any(dict(device.counters).values())
    )


class _Reporter:
    """What the calling process leaves."""

    def __init__(self, folder: str, machine: Callable[[], Machine | None]) -> None:
        self.path = Path(folder) / f"{os.getpid()}.json"
        self.machine = machine
        self.process = os.getpid()
        self.wrote = 0.0

    def write(self, *, ended: bool) -> None:
        if os.getpid() != self.process:  # a forked child runs its parent's exit handlers
            return
        machine = self.machine()
        if machine is None or not (machine.devices and self.path.parent.is_dir()):
            return
        snapshot = machine.snapshot()
        if not used(snapshot) and identity.rank is None:
            return
        told = ProcessReport(
            name=multiprocessing.current_process().name if identity.rank is None else f"rank {identity.rank}",
            rank=identity.rank,
            world_size=identity.world_size,
            attempt=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            ended=ended,
            snapshot=snapshot,
        )
        new = self.path.with_suffix(".new")
        with contextlib.suppress(OSError):  # the run has gone, or its disk is full
            new.write_text(told.model_dump_json(), encoding="utf-8")
            new.replace(self.path)


class _Identity:
    """Which rank this process is, if it is one."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.world_size: int | None = None

    def guess(self) -> None:
        """A process of torchrun's is the rank that its environment says; what it starts itself is not."""
        rank, size = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if rank.isdigit() and size.isdigit() and multiprocessing.parent_process() is None:
            self.rank, self.world_size = int(rank), int(size)


identity = _Identity()
_reporter: _Reporter | None = None


def report_to(folder: str, machine: Callable[[], Machine | None]) -> None:
    """Let this process leave its report in `folder` when it ends."""
    global _reporter
    if _reporter is None:
        identity.guess()
        _reporter = _Reporter(folder, machine)
        atexit.register(_reporter.write, ended=True)


def progress() -> None:
    """Leave how far this process has come, if the last time was a while ago."""
    if _reporter is not None and time.monotonic() - _reporter.wrote > _REFRESH_SECONDS:
        _reporter.write(ended=False)
        _reporter.wrote = time.monotonic()


def collect(folder: Path) -> tuple[ProcessReport, ...]:
    """What was left in a folder: ranks in their order, then others; of a rank that was started again, the last."""
    found: list[ProcessReport] = []
    for path in sorted(folder.glob("*.json")):
        with contextlib.suppress(OSError, ValidationError):
            found.append(ProcessReport.model_validate_json(path.read_text(encoding="utf-8")))
    ranks = {report.rank: report for report in sorted(found, key=lambda report: report.attempt)}
    others = sorted((report for report in found if report.rank is None), key=lambda report: report.name)
    return (*(ranks[rank] for rank in sorted(rank for rank in ranks if rank is not None)), *others)
