"""A recording that is written down, for tests of what a comparison makes of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.records import Collective, HostWork, Kernel, Total, Transfer, Wait

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class HostTimes:
    launch_ns: int = 5
    op_ns: int = 30

    def began(self, record: Kernel | Transfer | Collective) -> tuple[int, int, int]:
        launching = record.launched_ns - self.launch_ns
        dispatched = record.dispatched_ns if isinstance(record, Kernel) else 0
        return 0, min(dispatched or launching, launching), launching


@dataclass
class Written:
    """A recording with the records that a test gives it, on one host thread by default."""

    ended_ns: int
    kernels: list[Kernel] = field(default_factory=list)
    transfers: list[Transfer] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    host_work: list[HostWork] = field(default_factory=list)
    began_ns: int = 0
    host_times: HostTimes = field(default_factory=HostTimes)
    machine: Any = None
    simulated: bool = False
    origin: str = "a test"
    cards: Mapping[int, str] = field(default_factory=lambda: {0: "a card", 1: "a card"})
    allocations: list[Any] = field(default_factory=list)
    held_before: list[Any] = field(default_factory=list)
    totals: dict[tuple[int, str], Total] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)


def kernel(name: str = "aten::mm", start: int = 0, end: int = 1, **more: Any) -> Kernel:
    more.setdefault("launched_ns", start)
    more.setdefault("thread", "main")
    return Kernel(name, more.pop("device", 0), more.pop("stream", 0), start, end, **more)


def sequence(text: str, ns: int = 10, **more: Any) -> list[Kernel]:
    """A kernel for each letter, one after the other."""
    return [
        kernel(f"aten::{letter}", place * ns, (place + 1) * ns, correlation=place + 1, **more)
        for place, letter in enumerate(text)
    ]
