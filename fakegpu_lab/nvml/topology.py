"""How a machine's cards are connected: ``nvidia-smi topo -m``, and NVML's topology levels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.machine import Machine

LEVELS = {"X": 0, "PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
"""``nvmlGpuTopologyLevel_t``; cards joined by NVLink are in one NUMA node on the PCI bus."""

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


@dataclass(frozen=True)
class Topology:
    """The links between a machine's cards. All lists are by the cards' places in the machine.

    Attributes
    ----------
    links
        Of two cards: ``X``, ``NV12``, ``PIX``, ``PHB``, ``NODE``, ``SYS``.
    peers
        Of two cards: whether one can read the other's memory.
    cpus, numa
        Of a card: the nearest CPUs (``0-63,128-191``) and their NUMA node.
    """

    links: list[list[str]] = field(default_factory=list)
    peers: list[list[bool]] = field(default_factory=list)
    cpus: list[str] = field(default_factory=list)
    numa: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, machine: Machine) -> Topology:
        """Read a machine. Cards without a node sit in one host of 16 threads; other nodes' cards are farthest away."""
        places = range(len(machine.cards))
        return cls(
            [[_between(machine, a, b) for b in places] for a in places],
            [[machine.links.direct(a, b) for b in places] for a in places],
            [_cpus(machine, a) for a in places],
            [_socket(machine, a) for a in places],
        )


def _socket(machine: Machine, place: int) -> int:
    node = machine.spec.node
    if node is None:
        return 0
    per_node = machine.spec.gpus_per_node
    return place % per_node * node.host.sockets // per_node


def _cpus(machine: Machine, place: int) -> str:
    node = machine.spec.node
    if node is None:
        return "0-15"
    cores, sockets = node.host.cores, node.host.sockets
    first = _socket(machine, place) * cores // sockets
    last = first + cores // sockets - 1
    return f"{first}-{last},{first + cores}-{last + cores}"  # two threads a core


def _between(machine: Machine, a: int, b: int) -> str:
    if a == b:
        return "X"
    spec = machine.spec
    node, per_node = spec.node, spec.gpus_per_node
    if machine.links.nvlink(a, b):
        ports = spec.gpus[a].nvlink
        links = ports.links if ports is not None else 1
        if node is not None and node.fabric.kind == "nvlink-mesh":
            links = max(1, links // max(per_node - 1, 1))
        return f"NV{links}"
    if a // per_node != b // per_node or _socket(machine, a) != _socket(machine, b):
        return "SYS"
    if node is None:
        return "PHB"
    return "PIX" if a % per_node // node.pcie.gpus_per_switch == b % per_node // node.pcie.gpus_per_switch else "NODE"


def matrix(topology: Topology, chosen: list[int]) -> str:
    """The output of ``nvidia-smi topo -m``."""
    names = [f"GPU{place}" for place in chosen]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for place in chosen:
        cells = [" X " if place == other else topology.links[place][other] for other in chosen]
        lines.append("\t".join([f"GPU{place}", *cells, topology.cpus[place], str(topology.numa[place]), "", "N/A"]))
    return "\n".join(lines) + "\n" + LEGEND
