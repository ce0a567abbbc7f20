"""The machine as NVML shows it: its cards, how busy they are, and which processes use them.

A *document* is one process's description of its machine, as JSON; a *view* joins the documents of all processes that
share a machine.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml.cards import Card
from fakegpu_lab.nvml.sensors import Sensors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.machine import Machine

Document = dict[str, Any]
VERSION = 2
"""Of a document. Processes with another version of the package are strangers."""


@dataclass(frozen=True)
class Process:
    """A process on a card: the bytes that it holds there, and the fraction of the time in which its kernels ran."""

    pid: int
    name: str
    used: int
    busy: float

    @property
    def utilization(self) -> int:
        """In percent."""
        return min(100, round(100 * self.busy))


@dataclass(frozen=True)
class Gpu:
    """A card now."""

    card: Card
    sensors: Sensors
    processes: list[Process]

    @property
    def used(self) -> int:
        """Bytes that processes hold."""
        return sum(process.used for process in self.processes)

    @property
    def free(self) -> int:
        """Bytes that nothing holds."""
        return max(0, self.card.memory - self.card.reserved - self.used)

    def memory_utilization(self, process: Process) -> int:
        """The part of the card's memory utilization that falls to a process, in percent."""
        busy = sum(one.busy for one in self.processes)
        return round(self.sensors.memory * (process.busy / busy)) if busy else 0


@dataclass(frozen=True)
class View:
    """A machine now.

    Attributes
    ----------
    machine
        Its identity: the same in all its processes.
    spec
        The specification that it was made from.
    pids
        The processes that share it.
    """

    machine: str
    spec: str
    gpus: list[Gpu]
    pids: list[int] = field(default_factory=list)


def document(machine: Machine, identity: str, now: int | None = None) -> Document:
    """Describe this process's machine as JSON: the `Snapshot`, and the facts that do not change."""
    snapshot = machine.snapshot(now=now)
    return {
        "version": VERSION,
        "pid": os.getpid(),
        "name": process_name(),
        "machine": identity,
        "spec": machine.spec.text,
        **_facts(machine),
        "snapshot": snapshot.model_dump(mode="json"),
        "busy": [device.utilization(snapshot.now_ns) for device in machine.cards],
    }


@lru_cache(maxsize=1)
def _facts(machine: Machine) -> Document:
    """The facts about a machine that do not change."""
    return {"cards": [asdict(Card.of(device, machine)) for device in machine.cards]}


def forget() -> None:
    """Drop the cached facts, and the reference to their machine."""
    _facts.cache_clear()


def process_name() -> str:
    """The name that nvidia-smi prints for this process: its program."""
    return sys.executable or "python"


def joined(documents: Sequence[Document]) -> View:
    """The view of one machine, from the documents (at least one) of the processes that share it."""
    first = documents[0]
    documents = [one for one in documents if len(one["cards"]) == len(first["cards"])]
    gpus = []
    for place, facts in enumerate(first["cards"]):
        card = Card.read(facts)
        processes = []
        for one in documents:
            device = one["snapshot"]["devices"][place]
            if device["in_use"]:
                held = device["memory"]["context"] + device["memory"]["reserved"]
                processes.append(Process(one["pid"], one["name"], held, one["busy"][place]))
        busy = min(1.0, sum(process.busy for process in processes))
        gpus.append(Gpu(card, Sensors.of(card, busy, context=bool(processes)), processes))
    pids = [one["pid"] for one in documents if one["pid"]]
    return View(first["machine"], first["spec"], gpus, pids)
