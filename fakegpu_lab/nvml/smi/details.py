"""``nvidia-smi -q``: everything known about the cards, in indented lines; ``-d`` selects sections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION
from fakegpu_lab.nvml.cards import MIB
from fakegpu_lab.nvml.sensors import SHUTDOWN_C, SLOWDOWN_C, TARGET_C
from fakegpu_lab.nvml.smi.units import NOT_AVAILABLE, mib, now

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.nvml.view import Gpu

    Tree = dict[str, Any]

_COLUMN = 55
"""The column of the colon."""

SECTIONS = {
    "MEMORY": ("FB Memory Usage", "BAR1 Memory Usage", "Conf Compute Protected Memory Usage"),
    "UTILIZATION": ("Utilization",),
    "ECC": ("ECC Mode", "ECC Errors"),
    "TEMPERATURE": ("Temperature",),
    "POWER": ("GPU Power Readings",),
    "CLOCK": ("Clocks", "Applications Clocks", "Default Applications Clocks", "Max Clocks"),
    "COMPUTE": ("Compute Mode",),
    "PIDS": ("Processes",),
    "PERFORMANCE": ("Performance State", "Clocks Event Reasons"),
    "ENCODER_STATS": ("Encoder Stats",),
}
"""What ``-d`` selects, and the parts that it shows."""


def log(gpus: Sequence[Gpu], sections: Sequence[str], attached: int) -> str:
    """Return the whole log, or only the named sections."""
    lines = [
        "", "==============NVSMI LOG==============", "",
        _line("Timestamp", now("long"), 0), _line("Driver Version", DRIVER_VERSION, 0),
        _line("CUDA Version", "{}.{}".format(*CUDA_VERSION), 0), "", _line("Attached GPUs", str(attached), 0),
    ]  # fmt: skip
    wanted = {name for section in sections for name in SECTIONS[section]}
    for gpu in gpus:
        tree = _tree(gpu)
        lines.append(f"GPU {gpu.card.bus_id}")
        lines += _lines({name: part for name, part in tree.items() if not wanted or name in wanted}, 1)
        lines.append("")
    return "\n".join(lines) + "\n"


def _line(name: str, value: str, depth: int) -> str:
    return f"{'    ' * depth + name:<{_COLUMN}}: {value}"


def _lines(tree: Tree, depth: int) -> list[str]:
    lines = []
    for name, value in tree.items():
        if isinstance(value, dict):
            lines += [f"{'    ' * depth}{name}", *_lines(value, depth + 1)]
        elif isinstance(value, list):  # processes
            lines.append(f"{'    ' * depth}{name}")
            for one in value:
                lines += _process_lines(one, depth + 1)
        else:
            lines.append(_line(name, str(value), depth))
    return lines


def _process_lines(tree: Tree, depth: int) -> list[str]:
    """The lines of a process; their colons stand further to the left."""
    lines = []
    for name, value in tree.items():
        deeper = depth + (name in ("Type", "Name", "Used GPU Memory"))
        lines.append(f"{'    ' * deeper + name:<42}: {value}")
    return lines


def _tree(gpu: Gpu) -> Tree:
    card, sensors, n_a = gpu.card, gpu.sensors, NOT_AVAILABLE
    errors = "0" if card.ecc else n_a
    ecc = card.ecc_mode or n_a
    mig = "Disabled" if card.mig else n_a
    generation = str(card.pcie_link_generation)
    bar1 = card.bar1 // MIB
    limit = f"{card.power_limit:.2f} W"
    return {
        "Product Name": card.name,
        "Product Brand": card.brand,
        "Product Architecture": {"ada": "Ada Lovelace"}.get(card.architecture, card.architecture.capitalize()),
        "Display Mode": "Disabled",
        "Display Active": "Disabled",
        "Persistence Mode": "Enabled",
        "Addressing Mode": "None",
        "MIG Mode": {"Current": mig, "Pending": mig},
        "Accounting Mode": "Disabled",
        "Accounting Mode Buffer Size": "4000",
        "Driver Model": {"Current": n_a, "Pending": n_a},
        "Serial Number": n_a,
        "GPU UUID": card.uuid,
        "Minor Number": str(card.index),
        "VBIOS Version": n_a,
        "MultiGPU Board": "No",
        "Board ID": f"0x{card.bus << 8:x}",
        "GPU Part Number": n_a,
        "GPU Operation Mode": {"Current": n_a, "Pending": n_a},
        "GPU Virtualization Mode": {"Virtualization Mode": "None", "Host VGPU Mode": n_a},
        "GPU Recovery Action": "None",
        "GSP Firmware Version": n_a,
        "PCI": {
            "Bus": f"0x{card.bus:02X}",
            "Device": "0x00",
            "Domain": f"0x{card.domain:04X}",
            "Base Classcode": "0x3",
            "Sub Classcode": "0x2" if card.segment == "datacenter" else "0x0",
            "Device Id": f"0x{card.pci_device_id:08X}",
            "Bus Id": card.bus_id,
            "Sub System Id": f"0x{card.pci_device_id:08X}",
            "GPU Link Info": {
                "PCIe Generation": {
                    "Max": generation,
                    "Current": generation,
                    "Device Current": generation,
                    "Device Max": str(card.pcie_generation),
                    "Host Max": str(card.host_pcie_generation),
                },
                "Link Width": {"Max": f"{card.pcie_width}x", "Current": f"{card.pcie_width}x"},
            },
            "Replays Since Reset": "0",
            "Replay Number Rollovers": "0",
            "Tx Throughput": "0 KB/s",
            "Rx Throughput": "0 KB/s",
        },
        "Fan Speed": n_a if sensors.fan is None else f"{sensors.fan} %",
        "Performance State": f"P{sensors.pstate}",
        "Clocks Event Reasons": {
            "Idle": "Not Active" if gpu.processes else "Active",
            "Applications Clocks Setting": "Not Active",
            "SW Power Cap": "Not Active",
            "HW Slowdown": "Not Active",
            "Sync Boost": "Not Active",
            "SW Thermal Slowdown": "Not Active",
            "Display Clock Setting": "Not Active",
        },
        "FB Memory Usage": {
            "Total": f"{card.memory >> 20} MiB",
            "Reserved": f"{mib(card.reserved)} MiB",
            "Used": f"{mib(gpu.used)} MiB",
            "Free": f"{gpu.free >> 20} MiB",
        },
        "BAR1 Memory Usage": {"Total": f"{bar1} MiB", "Used": "1 MiB", "Free": f"{bar1 - 1} MiB"},
        "Conf Compute Protected Memory Usage": {"Total": "0 MiB", "Used": "0 MiB", "Free": "0 MiB"},
        "Compute Mode": "Default",
        "Utilization": {
            "GPU": f"{sensors.gpu} %",
            "Memory": f"{sensors.memory} %",
            "Encoder": "0 %",
            "Decoder": "0 %",
            "JPEG": "0 %",
            "OFA": "0 %",
        },
        "Encoder Stats": {"Active Sessions": "0", "Average FPS": "0", "Average Latency": "0"},
        "FBC Stats": {"Active Sessions": "0", "Average FPS": "0", "Average Latency": "0"},
        "ECC Mode": {"Current": ecc, "Pending": ecc},
        "ECC Errors": {
            kind: {
                "SRAM Correctable": errors,
                "SRAM Uncorrectable Parity": errors,
                "SRAM Uncorrectable SEC-DED": errors,
                "DRAM Correctable": errors,
                "DRAM Uncorrectable": errors,
            }
            for kind in ("Volatile", "Aggregate")
        },
        "Temperature": {
            "GPU Current Temp": f"{sensors.temperature} C",
            "GPU T.Limit Temp": n_a,
            "GPU Shutdown Temp": f"{SHUTDOWN_C} C",
            "GPU Slowdown Temp": f"{SLOWDOWN_C} C",
            "GPU Max Operating Temp": n_a,
            "GPU Target Temperature": f"{TARGET_C} C",
            "Memory Current Temp": n_a,
            "Memory Max Operating Temp": n_a,
        },
        "GPU Power Readings": {
            "Average Power Draw": f"{sensors.power:.2f} W",
            "Instantaneous Power Draw": f"{sensors.power:.2f} W",
            "Current Power Limit": limit,
            "Requested Power Limit": limit,
            "Default Power Limit": limit,
            "Min Power Limit": f"{card.power_limit / 4:.2f} W",
            "Max Power Limit": limit,
        },
        "Clocks": {
            "Graphics": f"{sensors.clock} MHz",
            "SM": f"{sensors.clock} MHz",
            "Memory": f"{sensors.memory_clock} MHz",
            "Video": f"{sensors.clock} MHz",
        },
        "Applications Clocks": {"Graphics": f"{card.clock} MHz", "Memory": f"{card.memory_clock} MHz"},
        "Default Applications Clocks": {"Graphics": f"{card.clock} MHz", "Memory": f"{card.memory_clock} MHz"},
        "Max Clocks": {
            "Graphics": f"{card.clock} MHz",
            "SM": f"{card.clock} MHz",
            "Memory": f"{card.memory_clock} MHz",
            "Video": f"{card.clock} MHz",
        },
        "Processes": [
            {
                "GPU instance ID": n_a,
                "Compute instance ID": n_a,
                "Process ID": process.pid,
                "Type": "C",
                "Name": process.name,
                "Used GPU Memory": f"{mib(process.used)} MiB",
            }
            for process in gpu.processes
        ]
        or "None",
    }
