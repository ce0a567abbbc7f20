"""The results of a run: tables for people, a report in JSON for programs. Reads nothing but a `Snapshot`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, several, size
from fakegpu_lab.hardware.snapshot import Snapshot  # noqa: TC001 - pydantic reads the annotation
from fakegpu_lab.processes.run_reports import ProcessReport, used
from fakegpu_lab.ranks.planning.figures import Plan  # noqa: TC001 - pydantic reads the annotation

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import Counters, DeviceSnapshot


class RunReport(BaseModel):
    """The file that ``fakegpu-lab run --report`` writes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    command: tuple[str, ...] = Field(description="the script or module, and its arguments")
    exit_status: int = Field(description="as the shell sees it; 130 after Ctrl-C, 143 after SIGTERM")
    snapshot: Snapshot = Field(description="the machine at the end of the run, as the program's own process saw it")
    rank: int | None = Field(default=None, description="of the program's own process, if it has one")
    processes: tuple[ProcessReport, ...] = Field(default=(), description="those it started that used their GPUs")
    plan: Plan | None = Field(default=None, description="what it did as a rank of an implied world")


def summary(snapshot: Snapshot, processes: tuple[ProcessReport, ...] = (), rank: int | None = None) -> Table:
    """The table of a finished run: one row per device. A copy between two devices is counted at its source.

    With `processes`, one row for each process and device that it used. `rank` is that of the program's own process.
    """
    if processes:
        return _of_processes(snapshot, processes, rank)
    devices = snapshot.devices
    mixed = len({device.id for device in devices}) > 1
    peers = len(devices) > 1
    headers = ["device", "allocated", "reserved", "H2D", "D2H", *(["P2P"] if peers else []), "kernels", "busy"]
    rows = [
        [f"{_ordinal(device)} {device.id}" if mixed else _ordinal(device), *_device_cells(device, peers=peers)]
        for device in devices
    ]
    elapsed = duration(snapshot.done_ns)
    title = f"fakegpu-lab {_machine(snapshot)}: peak memory, copies, kernels in {elapsed} of simulated time"
    return Table(headers, rows, title, frozenset(range(1, len(headers))))


def _of_processes(main: Snapshot, processes: tuple[ProcessReport, ...], rank: int | None) -> Table:
    used_devices = [(report.name, report.devices) for report in processes]
    elapsed_ns = [report.snapshot.done_ns for report in processes]
    if used(main) or rank is not None:
        used_devices.insert(0, ("main" if rank is None else f"rank {rank}", used(main)))
        elapsed_ns.append(main.done_ns)
    collectives = any(device.counters.collective_count for _, devices in used_devices for device in devices)
    headers = ["process", "device", "allocated", "reserved", "H2D", "D2H", "kernels", "busy"]
    headers += ["collectives", "waited"] if collectives else []
    rows = [
        [
            name,
            _ordinal(device),
            *_device_cells(device, peers=False),
            *(_collective_cells(device.counters) if collectives else []),
        ]
        for name, devices in used_devices
        for device in devices
    ]
    rows += [[name, "none", *["0"] * (len(headers) - 2)] for name, devices in used_devices if not devices]
    elapsed = duration(max(elapsed_ns))
    ranks = sum(number is not None for number in (rank, *(report.rank for report in processes)))
    what = several(ranks, "rank") if ranks else several(len(used_devices), "process", "processes")
    title = f"fakegpu-lab {_machine(main)}: {what}, each one's peak memory in {elapsed} of simulated time"
    killed = [report.name for report in processes if not report.ended]
    note = f"Killed, so shown as of one of the last collectives: {', '.join(killed)}." if killed else ""
    return Table(headers, rows, title, frozenset(range(2, len(headers))), note)


def _device_cells(device: DeviceSnapshot, *, peers: bool) -> list[str]:
    """What a run did on a device, as cells of a row: peak memory, copies, kernels, busy time."""
    return [
        size(device.memory.peak_allocated),
        size(device.memory.peak_reserved),
        *_copies(device.counters, peers=peers),
        f"{device.counters.kernels:,}",
        duration(device.time.busy_ns),
    ]


def status(snapshot: Snapshot) -> Table:
    """The table of the machine as it is now: one row per device."""
    counted = [] if snapshot.real else ["H2D", "D2H", "kernels"]
    headers = ["device", "name", "total", "allocated", "peak", "reserved", *counted]
    rows = [
        [
            _ordinal(device),
            device.name,
            capacity(device.memory.total),
            size(device.memory.allocated),
            size(device.memory.peak_allocated),
            size(device.memory.reserved),
            *([] if snapshot.real else [*_copies(device.counters, peers=False), f"{device.counters.kernels:,}"]),
        ]
        for device in snapshot.devices
    ]
    title = f"{_machine(snapshot)}: {several(len(rows), 'real GPU' if snapshot.real else 'simulated GPU')}"
    return Table(headers, rows, title, frozenset(range(2, len(headers))))


def _ordinal(device: DeviceSnapshot) -> str:
    """CUDA's name of a device; a card that ``CUDA_VISIBLE_DEVICES`` hides has none."""
    return f"cuda:{device.index}" if device.index >= 0 else f"hidden (GPU {device.slot})"


def _machine(snapshot: Snapshot) -> str:
    """The specification of the machine, without the folders of its files."""
    parts = [part.replace("\\", "/").rsplit("/", 1)[-1] for part in snapshot.spec.split(",")]
    return ",".join(parts) + (", shapes and memory only" if snapshot.compute == "meta" else "")


def _copies(counters: Counters, *, peers: bool) -> list[str]:
    pairs = [(counters.h2d_count, counters.h2d_bytes), (counters.d2h_count, counters.d2h_bytes)]
    if peers:
        pairs.append((counters.p2p_sent_count, counters.p2p_sent_bytes))
    return [_count(count, nbytes) for count, nbytes in pairs]


def _collective_cells(counters: Counters) -> list[str]:
    return [_count(counters.collective_count, counters.collective_bytes), duration(counters.collective_wait_ns)]


def _count(count: int, nbytes: int) -> str:
    return f"{count:,} ({size(nbytes)})" if count else "0"
