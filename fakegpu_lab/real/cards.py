"""The cards that torch sees, as a `Snapshot`: what live views read in place of a simulated machine.

Memory is what ``torch.cuda.memory_stats`` says of this process; utilization and what other processes hold is NVML's. No
reading waits for a card's work. What a card does not say is 0: the counters of kernels and copies.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

from fakegpu_lab.hardware.catalogue.lookup import gpu, key
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.snapshot import Counters, DeviceSnapshot, Memory, Snapshot, Time
from fakegpu_lab.real import nvml

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fakegpu_lab.hardware.memory_categories import Categories

READ_EVERY_NS = 250_000_000
"""The shortest time between two readings of NVML: its own samples are this far apart, or more."""

_NOTHING = Counters(
    kernels=0, h2d_count=0, h2d_bytes=0, d2h_count=0, d2h_bytes=0, p2p_sent_count=0, p2p_sent_bytes=0,
    p2p_received_count=0, p2p_received_bytes=0, collective_count=0, collective_bytes=0, collective_wait_ns=0,
)  # fmt: skip


class Named(NamedTuple):
    """What stands where a simulated machine has its specification."""

    text: str


class Cards:
    """The cards that torch sees, from the moment at which this was made.

    Attributes
    ----------
    spec
        Their names.
    """

    compute = "real"

    def __init__(self) -> None:
        self._began = time.monotonic_ns()
        self._lock = threading.Lock()
        count = torch.cuda.device_count()
        self.names = [torch.cuda.get_device_name(ordinal) for ordinal in range(count)]
        self.totals = [torch.cuda.get_device_properties(n).total_memory for n in range(count)]
        self._ids = [_id(name) for name in self.names]
        self._busy_ns = [0] * count
        self._read_ns = 0
        self._readings = [nvml.readings(ordinal) for ordinal in range(count)]
        self.spec = Named(", ".join(_counted(self.names)))

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the cards are watched."""
        return time.monotonic_ns() - self._began

    def readings(self, ordinal: int) -> nvml.Readings:
        """NVML's last readings of a card."""
        self._read()
        return self._readings[ordinal]

    def _read(self) -> None:
        """Read NVML if that is due, and count the part of the time since then in which kernels ran."""
        with self._lock:
            now = self.now_ns
            passed = now - self._read_ns
            if passed < READ_EVERY_NS:
                return
            self._read_ns = now
            for ordinal in range(len(self.names)):
                found = self._readings[ordinal] = nvml.readings(ordinal)
                self._busy_ns[ordinal] += round((found.utilization or 0.0) * passed)

    def snapshot(self, categories: Mapping[int, Categories] | None = None) -> Snapshot:
        """The cards now; `categories` has what their memory is for, by ordinal, if that is known."""
        self._read()
        pinned = torch.cuda.host_memory_stats()
        return Snapshot(
            spec=self.spec.text,
            compute=self.compute,
            now_ns=self.now_ns,
            devices=tuple(self._device(ordinal, categories or {}) for ordinal in range(len(self.names))),
            pinned=pinned.get("active_bytes.current", 0),
            pinned_reserved=pinned.get("allocated_bytes.current", 0),
            real=True,
        )

    def _device(self, ordinal: int, categories: Mapping[int, Categories]) -> DeviceSnapshot:
        stats = torch.cuda.memory_stats(ordinal)
        reserved = stats.get("reserved_bytes.all.current", 0)
        read = self._readings[ordinal]
        own = next((one.used for one in read.processes if one.pid == os.getpid()), None)
        in_use = own is not None or bool(stats.get("reserved_bytes.all.peak", 0))
        if own is None and len(read.processes) == 1:
            own = read.used  # in a container, NVML counts process ids from outside
        context = max(0, own - reserved) if in_use and own is not None else 0
        free = read.free
        if free is None:
            free = torch.cuda.mem_get_info(ordinal)[0] if in_use else self.totals[ordinal]
        return DeviceSnapshot(
            index=ordinal,
            slot=ordinal,
            id=self._ids[ordinal],
            name=self.names[ordinal],
            in_use=in_use,
            memory=Memory(
                total=self.totals[ordinal],
                free=free,
                allocated=stats.get("allocated_bytes.all.current", 0),
                peak_allocated=stats.get("allocated_bytes.all.peak", 0),
                reserved=reserved,
                peak_reserved=stats.get("reserved_bytes.all.peak", 0),
                context=context,
                alloc_retries=stats.get("num_alloc_retries", 0),
                ooms=stats.get("num_ooms", 0),
                categories=categories.get(ordinal),
            ),
            counters=_NOTHING,
            time=Time(busy_ns=self._busy_ns[ordinal], done_ns=self._read_ns),
        )

    def __repr__(self) -> str:
        return f"<Cards {self.spec.text}>"


def _id(name: str) -> str:
    """The id of the known card of this name; for an unknown one, the name without what all cards are called."""
    try:
        return gpu(name).id
    except FakeGpuError:
        return key(name)


def _counted(names: list[str]) -> list[str]:
    """Each name once, with how many there are."""
    counts = {name: names.count(name) for name in names}
    return [name if count == 1 else f"{count} × {name}" for name, count in counts.items()]
