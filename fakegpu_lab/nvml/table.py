"""The table that ``nvidia-smi`` prints, to the column as driver 580 does, and the list of ``nvidia-smi -L``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from fakegpu_lab.nvml import CUDA_VERSION, DRIVER_VERSION
from fakegpu_lab.nvml.cards import MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.nvml.view import Gpu

_RULE = f"+{'-' * 41}+{'-' * 24}+{'-' * 22}+"
_WIDE = f"+{'-' * 89}+"
_NAME, _PROCESS = 27, 36  # widths
_NOT_AVAILABLE = "N/A"


def table(gpus: Sequence[Gpu]) -> str:
    """Return the whole table: the date, a block for each card, the processes."""
    cuda = "{}.{}".format(*CUDA_VERSION)
    lines = [
        f"{_now()}       ",
        _WIDE,
        f"| NVIDIA-SMI {DRIVER_VERSION:<22} Driver Version: {DRIVER_VERSION:<14} CUDA Version: {cuda:<8} |",
        _RULE,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        f"|{'=' * 41}+{'=' * 24}+{'=' * 22}|",
    ]
    for gpu in gpus:
        lines += [*_card(gpu), _RULE]
    return "\n".join([*lines, "", *_processes(gpus), ""])


def _card(gpu: Gpu) -> list[str]:
    card, sensors = gpu.card, gpu.sensors
    name = card.name if len(card.name) <= _NAME else f"{card.name[: _NAME - 3]}..."
    fan = _NOT_AVAILABLE if sensors.fan is None else f"{sensors.fan}%"
    power, limit = f"{sensors.power:.0f}W", f"{card.power_limit:.0f}W"
    load, state, heat = f"{sensors.gpu}%", f"P{sensors.pstate}", f"{sensors.temperature}C"
    memory = f"{f'{mib(gpu.used)}MiB':>11} / {f'{card.memory // 2**20}MiB':>9}"
    mig = "Disabled" if card.mig else _NOT_AVAILABLE
    return [
        f"|{card.index:>4}  {name:<31}On  |   {card.bus_id} Off |{'0' if card.ecc else _NOT_AVAILABLE:>21} |",
        f"|{fan:>4}{heat:>6}{state:>6}{power:>16} / {limit:>5} |{memory:>23} |{load:>8}{'Default':>13} |",
        f"|{'':41}|{'':24}|{mig:>21} |",
    ]


def _processes(gpus: Sequence[Gpu]) -> list[str]:
    rows = []
    for gpu in gpus:
        for process in gpu.processes:
            name = process.name if len(process.name) <= _PROCESS else f"...{process.name[3 - _PROCESS :]}"
            used = f"{mib(process.used)}MiB"
            rows.append(f"|{gpu.card.index:>5}   N/A  N/A{process.pid:>16}      C   {name:<{_PROCESS}}{used:>10} |")
    return [
        _WIDE,
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        f"|{'=' * 89}|",
        *(rows or [f"|{'  No running processes found':<89}|"]),
        _WIDE,
    ]


def listed(gpus: Sequence[Gpu]) -> str:
    """Return the list of ``nvidia-smi -L``: one line for each card."""
    return "".join(f"GPU {gpu.card.index}: {gpu.card.name} (UUID: {gpu.card.uuid})\n" for gpu in gpus)


def mib(nbytes: int) -> int:
    """Whole MiB, rounded up, as nvidia-smi counts used memory."""
    return -(-nbytes // MIB)


def _now() -> str:
    """The computer's time, in English in every locale."""
    moment = time.localtime()
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.tm_wday]
    month = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][moment.tm_mon - 1]
    return f"{day} {month} {moment.tm_mday:2d} {time.strftime('%H:%M:%S', moment)} {moment.tm_year}"
