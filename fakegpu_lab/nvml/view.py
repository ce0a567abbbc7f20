"""The machine as NVML shows it: its cards, how busy they are, and which processes are on them.

A document is what one process tells of its machine; a view joins the documents of all processes that share one.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml.cards import Card
from fakegpu_lab.nvml.sensors import Sensors
from fakegpu_lab.nvml.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.machine import Machine

Document = dict[str, Any]
VERSION = 1


@dataclass(frozen=True)
class Process:
    """A process on a card: the bytes that it holds there, and for which part of the time its kernels ran."""

    pid: int
    name: str
    used: int
    busy: float


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
        """Bytes that are left."""
        return max(0, self.card.memory - self.card.reserved - self.used)


@dataclass(frozen=True)
class View:
    """A machine now.

    Attributes
    ----------
    machine
        Its identity: the same in all its processes.
    spec
        How it was asked for.
    pids
        The processes that told of it.
    """

    machine: str
    spec: str
    gpus: list[Gpu]
    topology: Topology
    pids: list[int] = field(default_factory=list)


def document(machine: Machine, identity: str, now: int | None = None) -> Document:
    """What this process tells of its machine, as JSON: the `Snapshot`, and what does not change."""
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
    """What does not change of a machine."""
    cards = [asdict(Card.of(device, machine)) for device in machine.cards]
    return {"cards": cards, "topology": asdict(Topology.of(machine))}


def forget() -> None:
    """Let go of the machine whose facts are remembered."""
    _facts.cache_clear()


def process_name() -> str:
    """What nvidia-smi calls this process: the program that it runs."""
    return sys.executable or "python"


def joined(documents: Sequence[Document]) -> View:
    """The view of the processes that share one machine, of which there is one at least."""
    first = documents[0]
    documents = [one for one in documents if len(one["cards"]) == len(first["cards"])]
    gpus = []
    for place, told in enumerate(first["cards"]):
        card = Card.read(told)
        processes = []
        for one in documents:
            device = one["snapshot"]["devices"][place]
            if device["in_use"]:
                held = device["memory"]["context"] + device["memory"]["reserved"]
                processes.append(Process(one["pid"], one["name"], held, one["busy"][place]))
        busy = min(1.0, sum(process.busy for process in processes))
        gpus.append(Gpu(card, Sensors.of(card, busy, context=bool(processes)), processes))
    pids = [one["pid"] for one in documents if one["pid"]]
    return View(first["machine"], first["spec"], gpus, Topology(**first["topology"]), pids)
