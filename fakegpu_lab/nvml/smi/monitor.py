"""``nvidia-smi dmon`` and ``pmon``: one line for each card, or for each process, every second."""

from __future__ import annotations

import time
from pathlib import PurePath
from typing import TYPE_CHECKING

from fakegpu_lab.nvml.smi.units import mib

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.nvml.view import Gpu, Process

    Column = tuple[str, str, Callable[[Gpu], object]]


def _unused(gpu: Gpu) -> object:
    return 0


DEVICE_METRICS: dict[str, list[Column]] = {
    "p": [
        ("pwr", "W", lambda g: round(g.sensors.power)), ("gtemp", "C", lambda g: g.sensors.temperature),
        ("mtemp", "C", lambda g: "-"),
    ],
    "u": [
        ("sm", "%", lambda g: g.sensors.gpu), ("mem", "%", lambda g: g.sensors.memory), ("enc", "%", _unused),
        ("dec", "%", _unused), ("jpg", "%", _unused), ("ofa", "%", _unused),
    ],
    "c": [("mclk", "MHz", lambda g: g.sensors.memory_clock), ("pclk", "MHz", lambda g: g.sensors.clock)],
    "v": [("pviol", "%", _unused), ("tviol", "bool", _unused)],
    "m": [("fb", "MB", lambda g: mib(g.used)), ("bar1", "MB", lambda g: 1), ("ccpm", "MB", _unused)],
    "e": [
        ("sbecc", "errs", lambda g: 0 if g.card.ecc else "-"), ("dbecc", "errs", lambda g: 0 if g.card.ecc else "-"),
        ("pci", "errs", _unused),
    ],
    "t": [("rxpci", "MB/s", _unused), ("txpci", "MB/s", _unused)],
}  # fmt: skip
"""What ``-s`` selects, in the order of the columns: power, utilisation, clocks, violations, memory, errors, PCIe."""

PROCESS_METRICS = ("u", "m")

_HEADER_INTERVAL = 20
"""The headers are repeated after this many rounds."""


class Monitor:
    """One run of dmon or pmon.

    Parameters
    ----------
    metrics
        The letters of ``-s``.
    date
        ``-o``: D for the date, T for the time, before each line.
    rounds
        ``-c``; None runs forever.
    """

    def __init__(self, metrics: str, *, processes: bool, date: str = "", rounds: int | None = None) -> None:
        self.metrics = metrics
        self.processes = processes
        self.date = date.upper()
        self.rounds = rounds
        self.done = 0

    def lines(self, gpus: Sequence[Gpu]) -> str:
        """Return the lines of the next round; end the program after the last one."""
        if self.rounds is not None and self.done >= self.rounds:
            raise KeyboardInterrupt
        stamp = self._timestamp()
        head = self._headers() if self.done % _HEADER_INTERVAL == 0 else []
        rows = self._process_rows(gpus) if self.processes else self._card_rows(gpus)
        self.done += 1
        return "".join(f"{line}\n" for line in [*head, *(stamp + row for row in rows)])

    def _timestamp(self) -> str:
        form = " %Y%m%d " * ("D" in self.date) + " %H:%M:%S " * ("T" in self.date)
        return time.strftime(form) if form else ""

    def _headers(self) -> list[str]:
        if self.processes:
            memory = "m" in self.metrics
            use = "u" in self.metrics
            names, units = ("# gpu         pid   type", "# Idx           #    C/G")
            if use:
                names, units = names + _row(["sm", "mem", "enc", "dec", "jpg", "ofa"]), units + _row(["%"] * 6)
            if memory:
                names, units = names + _row(["fb", "ccpm"]), units + _row(["MB", "MB"])
            pair = [f"{names}    command ", f"{units}    name "]
        else:
            columns = self._columns()
            pair = [f"# gpu{_row([c[0] for c in columns])} ", f"# Idx{_row([c[1] for c in columns])} "]
        for letter, before in (("T", ("Time", "HH:MM:SS")), ("D", ("Date", "YYYYMMDD"))):
            if letter in self.date:
                pair = [f"#{one:<9}{line[1:]}" for one, line in zip(before, pair, strict=True)]
        return pair

    def _columns(self) -> list[Column]:
        return [column for letter, columns in DEVICE_METRICS.items() if letter in self.metrics for column in columns]

    def _card_rows(self, gpus: Sequence[Gpu]) -> list[str]:
        columns = self._columns()
        return [f"{gpu.card.index:>5}{_row([read(gpu) for _, _, read in columns])} " for gpu in gpus]

    def _process_rows(self, gpus: Sequence[Gpu]) -> list[str]:
        rows = []
        for gpu in gpus:
            rows += [self._process_row(gpu, process) for process in gpu.processes]
            if not gpu.processes:
                width = 6 * ("u" in self.metrics) + 2 * ("m" in self.metrics)
                rows.append(f"{gpu.card.index:>5}{'-':>11}{'-':>6}{_row(['-'] * width)}    {'-':<15}")
        return rows

    def _process_row(self, gpu: Gpu, process: Process) -> str:
        cells: list[object] = []
        if "u" in self.metrics:
            cells += [process.utilization, gpu.memory_utilization(process), "-", "-", "-", "-"]
        if "m" in self.metrics:
            cells += [mib(process.used), 0]
        name = PurePath(process.name).name[:15]
        return f"{gpu.card.index:>5}{process.pid:>11}{'C':>6}{_row(cells)}    {name:<15}"


def _row(cells: Sequence[object]) -> str:
    return "".join(f"{cell!s:>7}" for cell in cells)
