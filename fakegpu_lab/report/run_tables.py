"""What a machine did, for people to read (tables) and for programs (JSON). Reads nothing but a `Snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.snapshot import Snapshot  # noqa: TC001 - pydantic reads the annotation
from fakegpu_lab.processes.run_reports import ProcessReport, used
from fakegpu_lab.ranks.planning.figures import Plan  # noqa: TC001 - pydantic reads the annotation

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import Counters, DeviceSnapshot


class RunReport(BaseModel):
    """What ``fakegpu-lab run --report`` writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    command: tuple[str, ...] = Field(description="the script or module, and its arguments")
    exit_status: int = Field(description="as the shell sees it; 130 after Ctrl-C")
    snapshot: Snapshot = Field(description="the machine at the end of the run, as the program's own process saw it")
    processes: tuple[ProcessReport, ...] = Field(default=(), description="those it started that used their GPUs")
    plan: Plan | None = Field(default=None, description="what it did as a rank of an implied world")


def summary(snapshot: Snapshot, processes: tuple[ProcessReport, ...] = ()) -> Table:
    """Tell of a finished run: one row a device. A copy between two devices is counted where it started.

    With `processes`, one row for each of them and device that it used.
    """
    if processes:
        return _of_processes(snapshot, processes)
    devices = snapshot.devices
    mixed = len({device.id for device in devices}) > 1
    several = len(devices) > 1
    headers = ["device", "allocated", "reserved", "H2D", "D2H", *(["P2P"] if several else []), "kernels", "busy"]
    rows = [
        [
            f"{_ordinal(device)} {device.id}" if mixed else _ordinal(device),
            size(device.memory.peak_allocated),
            size(device.memory.peak_reserved),
            *_copies(device.counters, peers=several),
            f"{device.counters.kernels:,}",
            duration(device.time.busy_ns),
        ]
        for device in devices
    ]
    elapsed = duration(snapshot.done_ns)
    title = f"fakegpu-lab {_machine(snapshot)}: peak memory, copies, kernels in {elapsed} of simulated time"
    return Table(headers, rows, title, frozenset(range(1, len(headers))))


def _of_processes(main: Snapshot, processes: tuple[ProcessReport, ...]) -> Table:
    tellers = [(report.name, report.devices, report.snapshot.done_ns) for report in processes]
    if used(main):
        tellers.insert(0, ("main", used(main), main.done_ns))
    together = any(device.counters.collective_count for _, devices, _ in tellers for device in devices)
    headers = ["process", "device", "allocated", "reserved", "H2D", "D2H", "kernels", "busy"]
    headers += ["collectives", "waited"] if together else []
    rows = [
        [
            name,
            _ordinal(device),
            size(device.memory.peak_allocated),
            size(device.memory.peak_reserved),
            *_copies(device.counters, peers=False),
            f"{device.counters.kernels:,}",
            duration(device.time.busy_ns),
            *(_together(device.counters) if together else []),
        ]
        for name, devices, _ in tellers
        for device in devices
    ]
    rows += [[name, "none", *["0"] * (len(headers) - 2)] for name, devices, _ in tellers if not devices]
    elapsed = max(done for _, _, done in tellers)
    ranks = sum(report.rank is not None for report in processes)
    who = several(ranks, "rank") if ranks else several(len(tellers), "process", "processes")
    title = f"fakegpu-lab {_machine(main)}: {who}, each one's peak memory in {duration(elapsed)} of simulated time"
    killed = [report.name for report in processes if not report.ended]
    note = f"Killed, and told of as at one of the last collectives: {', '.join(killed)}." if killed else ""
    return Table(headers, rows, title, frozenset(range(2, len(headers))), note)


def status(snapshot: Snapshot) -> Table:
    """Tell of the machine as it is now: one row a device."""
    headers = ["device", "name", "total", "allocated", "peak", "reserved", "H2D", "D2H", "kernels"]
    rows = [
        [
            _ordinal(device),
            device.name,
            size(device.memory.total),
            size(device.memory.allocated),
            size(device.memory.peak_allocated),
            size(device.memory.reserved),
            *_copies(device.counters, peers=False),
            f"{device.counters.kernels:,}",
        ]
        for device in snapshot.devices
    ]
    title = f"{_machine(snapshot)}: {several(len(rows), 'simulated GPU')}"
    return Table(headers, rows, title, frozenset(range(2, len(headers))))


def _ordinal(device: DeviceSnapshot) -> str:
    """What CUDA calls it; a card that ``CUDA_VISIBLE_DEVICES`` hides has no name there."""
    return f"cuda:{device.index}" if device.index >= 0 else f"hidden (GPU {device.slot})"


def _machine(snapshot: Snapshot) -> str:
    """How the machine was asked for, without the folders of its files."""
    parts = [part.replace("\\", "/").rsplit("/", 1)[-1] for part in snapshot.spec.split(",")]
    return ",".join(parts) + (", shapes and memory only" if snapshot.compute == "meta" else "")


def _copies(counters: Counters, *, peers: bool) -> list[str]:
    pairs = [(counters.h2d_count, counters.h2d_bytes), (counters.d2h_count, counters.d2h_bytes)]
    if peers:
        pairs.append((counters.p2p_sent_count, counters.p2p_sent_bytes))
    return [_count(count, nbytes) for count, nbytes in pairs]


def _together(counters: Counters) -> list[str]:
    return [_count(counters.collective_count, counters.collective_bytes), duration(counters.collective_wait_ns)]


def _count(count: int, nbytes: int) -> str:
    return f"{count:,} ({size(nbytes)})" if count else "0"
