"""The fields of ``--query-gpu`` and ``--query-compute-apps``, and the CSV they make."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.nvml import DRIVER_VERSION
from fakegpu_lab.nvml.table import mib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.nvml.view import Gpu

    Value = str | int | float | None


@dataclass(frozen=True)
class Field:
    """A field: its unit in the header, its value (None is ``[N/A]``), its help text, its other names.

    `read` gets the card, and for a field of a process (`APP_FIELDS`) the process.
    """

    unit: str
    read: Callable[..., Value]
    help: str
    aliases: tuple[str, ...] = ()


def _now() -> str:
    return time.strftime("%Y/%m/%d %H:%M:%S") + f".{time.time_ns() // 1_000_000 % 1000:03d}"


def _ecc_errors(gpu: Gpu) -> Value:
    return 0 if gpu.card.ecc else None


def _none(gpu: Gpu) -> Value:
    return None


def _generation(gpu: Gpu) -> Value:
    return gpu.card.pcie_link_generation


def _limit(gpu: Gpu) -> Value:
    return float(gpu.card.power_limit)


def _ecc_mode(gpu: Gpu) -> Value:
    return gpu.card.ecc_mode


def _mig(gpu: Gpu) -> Value:
    return "Disabled" if gpu.card.mig else None


def _reason(gpu: Gpu) -> Value:
    return "0x0000000000000000" if gpu.processes else "0x0000000000000001"


def _not_active(gpu: Gpu) -> Value:
    return "Not Active"


GPU_FIELDS: dict[str, Field] = {
    "timestamp": Field("", lambda g: _now(), "When the question was answered."),
    "driver_version": Field("", lambda g: DRIVER_VERSION, "The version of the driver."),
    "count": Field("", _none, "How many GPUs the machine has."),
    "name": Field("", lambda g: g.card.name, "The card's name.", ("gpu_name",)),
    "serial": Field("", _none, "The board's serial number.", ("gpu_serial",)),
    "uuid": Field("", lambda g: g.card.uuid, "The card's UUID; the same in every run.", ("gpu_uuid",)),
    "pci.bus_id": Field("", lambda g: g.card.bus_id, "domain:bus:device.function, in hex.", ("gpu_bus_id",)),
    "pci.domain": Field("", lambda g: f"0x{g.card.domain:04X}", "The PCI domain, in hex."),
    "pci.bus": Field("", lambda g: f"0x{g.card.bus:02X}", "The PCI bus, in hex."),
    "pci.device": Field("", lambda g: "0x00", "The PCI device, in hex."),
    "pci.device_id": Field("", lambda g: f"0x{g.card.pci_device_id:08X}", "The PCI vendor and device id, in hex."),
    "pci.sub_device_id": Field("", lambda g: f"0x{g.card.pci_device_id:08X}", "The PCI subsystem id, in hex."),
    "pcie.link.gen.gpucurrent": Field("", _generation, "The PCIe generation in use."),
    "pcie.link.gen.current": Field("", _generation, "The same.", ()),
    "pcie.link.gen.max": Field("", _generation, "The highest PCIe generation of this card in this slot."),
    "pcie.link.gen.gpumax": Field("", lambda g: g.card.pcie_generation, "The highest PCIe generation of the card."),
    "pcie.link.gen.hostmax": Field("", lambda g: g.card.host_pcie_generation, "The slot's PCIe generation."),
    "pcie.link.width.current": Field("", lambda g: g.card.pcie_width, "PCIe lanes in use."),
    "pcie.link.width.max": Field("", lambda g: g.card.pcie_width, "PCIe lanes of the card."),
    "index": Field("", lambda g: g.card.index, "The card's place in the machine, from 0."),
    "display_mode": Field("", lambda g: "Disabled", "Whether a display is connected."),
    "display_active": Field("", lambda g: "Disabled", "Whether a display is drawn on it."),
    "display_attached": Field("", lambda g: "No", "Whether a display is connected."),
    "persistence_mode": Field("", lambda g: "Enabled", "Whether the driver stays loaded."),
    "accounting.mode": Field("", lambda g: "Disabled", "Whether processes are accounted for."),
    "accounting.buffer_size": Field("", lambda g: 4000, "How many processes could be."),
    "driver_model.current": Field("", _none, "Windows only.", ()),
    "driver_model.pending": Field("", _none, "Windows only.", ()),
    "vbios_version": Field("", _none, "The firmware's version."),
    "inforom.img": Field("", _none, "The InfoROM image's version.", ("inforom.image",)),
    "inforom.oem": Field("", _none, "A version."),
    "inforom.ecc": Field("", _none, "A version."),
    "inforom.pwr": Field("", _none, "A version.", ("inforom.power",)),
    "fan.speed": Field("%", lambda g: g.sensors.fan, "The fan's speed, in percent of the highest."),
    "pstate": Field("", lambda g: f"P{g.sensors.pstate}", "The performance state, P0 (most) to P12."),
    "memory.total": Field("MiB", lambda g: g.card.memory // 2**20, "The memory of the card."),
    "memory.reserved": Field("MiB", lambda g: mib(g.card.reserved), "What the driver keeps for itself."),
    "memory.used": Field("MiB", lambda g: mib(g.used), "What processes hold: contexts, and PyTorch's reserved memory."),
    "memory.free": Field("MiB", lambda g: g.free // 2**20, "What is left."),
    "compute_mode": Field("", lambda g: "Default", "Who may compute on it."),
    "compute_cap": Field("", lambda g: "{}.{}".format(*g.card.capability), "The CUDA compute capability."),
    "utilization.gpu": Field("%", lambda g: g.sensors.gpu, "How much of the last 1/6 s (simulated) a kernel ran."),
    "utilization.memory": Field("%", lambda g: g.sensors.memory, "How much of it memory was in use, by a model."),
    "utilization.encoder": Field("%", lambda g: 0, "Video encoders: not simulated."),
    "utilization.decoder": Field("%", lambda g: 0, "Video decoders: not simulated."),
    "utilization.jpeg": Field("%", lambda g: 0, "JPEG engines: not simulated."),
    "utilization.ofa": Field("%", lambda g: 0, "Optical flow: not simulated."),
    "encoder.stats.sessionCount": Field("", lambda g: 0, "Video encoding sessions."),
    "encoder.stats.averageFps": Field("", lambda g: 0, "Their frames a second."),
    "encoder.stats.averageLatency": Field("", lambda g: 0, "Their latency."),
    "ecc.mode.current": Field("", _ecc_mode, "Whether memory errors are corrected."),
    "ecc.mode.pending": Field("", _ecc_mode, "Whether they will be after a restart."),
    "ecc.errors.corrected.volatile.device_memory": Field("", _ecc_errors, "Errors since the driver was loaded."),
    "ecc.errors.corrected.volatile.total": Field("", _ecc_errors, "Errors since the driver was loaded."),
    "ecc.errors.corrected.aggregate.total": Field("", _ecc_errors, "Errors in the card's life."),
    "ecc.errors.uncorrected.volatile.device_memory": Field("", _ecc_errors, "Errors since the driver was loaded."),
    "ecc.errors.uncorrected.volatile.total": Field("", _ecc_errors, "Errors since the driver was loaded."),
    "ecc.errors.uncorrected.aggregate.total": Field("", _ecc_errors, "Errors in the card's life."),
    "temperature.gpu": Field("", lambda g: g.sensors.temperature, "°C, by a model of the load."),
    "temperature.memory": Field("", lambda g: "N/A", "°C of the memory: not simulated."),
    "temperature.gpu.tlimit": Field("", lambda g: "N/A", "°C that are left: not simulated."),
    "power.management": Field("", lambda g: "Enabled", "Whether there is a power limit."),
    "power.draw": Field("W", lambda g: g.sensors.power, "Watts, by a model of the load."),
    "power.draw.average": Field("W", lambda g: g.sensors.power, "The same."),
    "power.draw.instant": Field("W", lambda g: g.sensors.power, "The same."),
    "power.limit": Field("W", _limit, "The power limit."),
    "enforced.power.limit": Field("W", _limit, "The power limit."),
    "power.default_limit": Field("W", _limit, "The power limit."),
    "power.min_limit": Field("W", lambda g: g.card.power_limit / 4, "The lowest limit that could be set."),
    "power.max_limit": Field("W", _limit, "The highest limit that could be set."),
    "clocks.current.graphics": Field("MHz", lambda g: g.sensors.clock, "", ("clocks.gr",)),
    "clocks.current.sm": Field("MHz", lambda g: g.sensors.clock, "The multiprocessors' clock.", ("clocks.sm",)),
    "clocks.current.memory": Field("MHz", lambda g: g.sensors.memory_clock, "The memory's clock.", ("clocks.mem",)),
    "clocks.current.video": Field("MHz", lambda g: g.sensors.clock, "", ("clocks.video",)),
    "clocks.applications.graphics": Field("MHz", lambda g: g.card.clock, "", ("clocks.applications.gr",)),
    "clocks.applications.memory": Field("MHz", lambda g: g.card.memory_clock, "", ("clocks.applications.mem",)),
    "clocks.default_applications.graphics": Field(
        "MHz", lambda g: g.card.clock, "", ("clocks.default_applications.gr",)
    ),
    "clocks.default_applications.memory": Field(
        "MHz", lambda g: g.card.memory_clock, "", ("clocks.default_applications.mem",)
    ),
    "clocks.max.graphics": Field("MHz", lambda g: g.card.clock, "The highest clock.", ("clocks.max.gr",)),
    "clocks.max.sm": Field("MHz", lambda g: g.card.clock, "The highest clock."),
    "clocks.max.memory": Field("MHz", lambda g: g.card.memory_clock, "The highest clock.", ("clocks.max.mem",)),
    "mig.mode.current": Field("", _mig, "Whether it is cut into instances."),
    "mig.mode.pending": Field("", _mig, "Whether it will be."),
    "gom.current": Field("", _none, "The operation mode.", ("gpu_operation_mode.current",)),
    "clocks_event_reasons.active": Field(
        "", _reason, "Why the clocks are what they are.", ("clocks_throttle_reasons.active",)
    ),
    "clocks_event_reasons.supported": Field(
        "", lambda g: "0x00000000000001FF", "What could be a reason.", ("clocks_throttle_reasons.supported",)
    ),
    "clocks_event_reasons.gpu_idle": Field(
        "", lambda g: "Not Active" if g.processes else "Active", "Nothing to do.", ("clocks_throttle_reasons.gpu_idle",)
    ),
    **{
        f"clocks_event_reasons.{reason}": Field("", _not_active, said, (f"clocks_throttle_reasons.{reason}",))
        for reason, said in (
            ("applications_clocks_setting", "Clocks were set."), ("sw_power_cap", "The power limit: not simulated."),
            ("hw_slowdown", "Heat or power: not simulated."), ("hw_thermal_slowdown", "Heat: not simulated."),
            ("hw_power_brake_slowdown", "Power: not simulated."), ("sw_thermal_slowdown", "Heat: not simulated."),
            ("sync_boost", "Another card's clocks: not simulated."),
        )
    },
    **{
        name: Field("", _none, "Not simulated.")
        for name in (
            "gsp.mode.current", "gsp.mode.default", "retired_pages.pending", "c2c.mode", "protected_memory.total",
            "addressing_mode", "gpu_recovery_action", "fabric.state", "fabric.status", "board_id",
        )
    },
}  # fmt: skip


APP_FIELDS: dict[str, Field] = {
    "timestamp": Field("", lambda g, p: _now(), "When the question was answered."),
    "gpu_name": Field("", lambda g, p: g.card.name, "The card's name."),
    "gpu_bus_id": Field("", lambda g, p: g.card.bus_id, "domain:bus:device.function, in hex."),
    "gpu_serial": Field("", lambda g, p: None, "The board's serial number."),
    "gpu_uuid": Field("", lambda g, p: g.card.uuid, "The card's UUID."),
    "pid": Field("", lambda g, p: p.pid, "The process's id."),
    "process_name": Field("", lambda g, p: p.name, "The program that it runs.", ("name",)),
    "used_gpu_memory": Field("MiB", lambda g, p: mib(p.used), "What it holds on the card.", ("used_memory",)),
}


class UnknownFieldError(Exception):
    """No field has this name (``args[0]``)."""


def named(names: Sequence[str], known: dict[str, Field]) -> list[tuple[str, Field]]:
    """Find fields by their names or aliases.

    Raises
    ------
    UnknownFieldError
        If no field has one of the names.
    """
    return [_named(name, known) for name in names]


def _named(name: str, known: dict[str, Field]) -> tuple[str, Field]:
    for full, field in known.items():
        if name == full or name in field.aliases:
            return full, field
    raise UnknownFieldError(name)


def gpus_csv(gpus: Sequence[Gpu], fields: Sequence[tuple[str, Field]], *, header: bool, units: bool, count: int) -> str:
    """The table of ``--query-gpu``: one row for each card. `count` is the number of cards in the machine."""
    rows = [
        [_cell(field, count if name == "count" else field.read(gpu), units=units) for name, field in fields]
        for gpu in gpus
    ]
    return _csv(fields, rows, header=header)


def apps_csv(gpus: Sequence[Gpu], fields: Sequence[tuple[str, Field]], *, header: bool, units: bool) -> str:
    """The table of ``--query-compute-apps``: one row for each process on a card."""
    rows = [
        [_cell(field, field.read(gpu, process), units=units) for _, field in fields]
        for gpu in gpus
        for process in gpu.processes
    ]
    return _csv(fields, rows, header=header)


def _cell(field: Field, value: Value, *, units: bool) -> str:
    if value is None:
        return "[N/A]"
    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    return f"{text} {field.unit}" if units and field.unit else text


def _csv(fields: Sequence[tuple[str, Field]], rows: list[list[str]], *, header: bool) -> str:
    lines = [[f"{name} [{field.unit}]" if field.unit else name for name, field in fields]] if header else []
    return "".join(", ".join(cells) + "\n" for cells in [*lines, *rows])


def help_text(switch: str) -> str:
    """The text of ``--help-query-gpu`` and ``--help-query-compute-apps``."""
    known = GPU_FIELDS if switch == "--query-gpu" else APP_FIELDS
    parts = [f'List of valid properties to query for the switch "{switch}":\n']
    for name, field in known.items():
        names = " or ".join(f'"{one}"' for one in (name, *field.aliases))
        parts.append(f"{names}\n{field.help or 'A clock.'}\n")
    return "\n".join(parts) + "\n"
