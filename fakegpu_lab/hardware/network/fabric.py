"""The time of a collective on a machine: its links, as NCCL sees them.

A group's place in the machine (which nodes, which links) becomes `nccl.Paths`; NCCL's model does the rest. The figures
come from the node's profile, so your own YAML file can change them:

>>> from fakegpu_lab.hardware.catalogue.spec import parse_spec
>>> cost = Fabric(parse_spec("dgx-a100")).cost("all_reduce", range(8), 1 << 30)
>>> cost.algorithm, cost.protocol, round(cost.ns / 1e6, 1), round(cost.bus_bandwidth / 1e9)
('ring', 'Simple', 7.9, 238)
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.network import footprint, nccl
from fakegpu_lab.hardware.network.links import bridged, peers, slower

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile
    from fakegpu_lab.hardware.catalogue.spec import MachineSpec

_NVLINK_DATA = {(8, 6): 12.0 / 14.0625, (9, 0): 20.6 / 25.0, (10, 0): 40.1 / 50.0}
_NVLINK_DATA_ELSE = 20.0 / 25.0
"""The fraction of NVLink's bandwidth one way that NCCL assumes (src/graph/topo.h), by compute capability."""

PCIE_DATA = 12.0 / 15.76
"""The same for PCI Express: 12 GB/s on sixteen lanes of generation 3 (ncclTopoAddPci)."""

HOST_MEMORY = 0.5
"""The fraction of that which is left where loose cards reach each other through host memory, which every byte enters
and leaves: 8 RTX 5090 get 28 of 48 GB/s (github.com/NVIDIA/nccl/issues/1639)."""

_LOCAL_BYTES = 2.0
"""Memory traffic for each byte in a group of one rank: the collective is a copy, which reads and writes each byte."""


@dataclass(frozen=True)
class Cost:
    """A collective's time.

    Attributes
    ----------
    ns
        Nanoseconds from when the last rank is ready.
    algorithm, protocol
        NCCL's choice: ``"ring"``, ``"tree"``, ``"nvls"``, ``"nvls_tree"`` or ``"p2p"``, with ``"LL"``, ``"LL128"`` or
        ``"Simple"``; ``"copy"`` in a group of one.
    bandwidth, bus_bandwidth
        Bytes per second as nccl-tests reports them: of the collective's size, and of the links' traffic.
    blocks, memory_traffic
        What it takes from each card meanwhile (`footprint`): multiprocessors, and bytes per second in its memory.
    on_links_ns
        Of a send: for how many of those nanoseconds its bytes fill the sender's links out and the receiver's links in,
        which sends to and from others need, too (`PeerLinks`); 0 where each pair of cards has links of its own.
    """

    ns: int
    algorithm: str
    protocol: str
    bandwidth: float
    bus_bandwidth: float
    blocks: int = 0
    memory_traffic: float = 0.0
    on_links_ns: int = 0


def peer_to_peer() -> bool:
    """Whether NCCL may let GPUs access each other directly: ``NCCL_P2P_DISABLE=1`` forbids it, NVLink included."""
    return os.environ.get("NCCL_P2P_DISABLE", "").strip() != "1"


class Fabric:
    """The links of a machine as NCCL sees them.

    NCCL reads ``NCCL_P2P_DISABLE`` once in a process, when its first group of GPUs meets; here it counts as it is at
    each call, since the ranks of all runs share a process. Of NCCL's other variables, none changes a time.

    Parameters
    ----------
    spec
        Its cards. Outside a node, cards with NVLink are joined as on NVIDIA's boards: SXM modules by NVSwitch (from
        Hopper on with in-network reduction), cards with a bridge in pairs. A ring through more than two of those goes
        over PCI Express.
    """

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        self._paths: dict[tuple[bool, tuple[int, ...]], nccl.Paths] = {}
        self._costs: dict[tuple[bool, str, tuple[int, ...], int], Cost] = {}
        self._across: dict[int, Fabric] = {}

    def across(self, machines: int) -> Fabric:
        """The links between this many machines like this one."""
        if machines == 1:
            return self
        if machines not in self._across:
            spec = replace(self.spec, gpus=self.spec.gpus * machines, nodes=self.spec.nodes * machines)
            self._across[machines] = Fabric(spec)
        return self._across[machines]

    def cost(self, operation: nccl.Operation, slots: Iterable[int], nbytes: int) -> Cost:
        """The time of a collective.

        Parameters
        ----------
        operation
            Such as ``"all_reduce"``.
        slots
            The devices' places in the machine; for send and recv, the two.
        nbytes
            The collective's size, as NCCL counts it: the larger of a rank's input and output. A barrier has 4.
        """
        group = tuple(slots)
        key = (peer_to_peer(), operation, group, nbytes)
        found = self._costs.get(key)
        if found is None:
            if len(self._costs) > 10_000:
                self._costs.clear()
            found = self._costs[key] = self._compute(operation, group, nbytes)
        return found

    def _compute(self, operation: nccl.Operation, group: tuple[int, ...], nbytes: int) -> Cost:
        if len(group) < 2:
            rate = self.spec.gpus[group[0]].memory_bandwidth / _LOCAL_BYTES
            ns = 2_000 + round(nbytes / rate * 1e9)
            return Cost(ns, "copy", "", nbytes / ns * 1e9, 0.0)
        paths = self.paths(group)
        line = nccl.fastest(operation, paths, nbytes)
        ns = round(line.us(nbytes) * 1e3)
        rate = nbytes / ns * 1e9
        bus = rate * nccl.bus_factor(operation, paths.ranks)
        blocks = footprint.blocks(line, paths, nbytes)
        shared = operation == "send" and (paths.switched or paths.nodes > 1 or paths.hardware == "pcie")
        on_links = round((line.us(nbytes) - line.latency) * 1e3) if shared else 0
        return Cost(ns, line.algorithm, line.protocol, rate, bus, blocks, footprint.memory_traffic(bus), on_links)

    def paths(self, slots: Sequence[int]) -> nccl.Paths:
        """How these devices reach each other."""
        group = tuple(slots)
        key = (peer_to_peer(), group)
        if key not in self._paths:
            self._paths[key] = self._find_paths(group)
        return self._paths[key]

    def channels(self, slot: int) -> int:
        """How many channels NCCL has on a device of this slot, for groups within its node.

        Simplified: a group of few devices has as many as one of all.
        """
        per_node = min(self.spec.gpus_per_node, len(self.spec.gpus))
        first = slot - slot % per_node
        if per_node < 2:
            return 2
        return footprint.channels(self.paths(range(first, first + per_node)))

    def _find_paths(self, group: tuple[int, ...]) -> nccl.Paths:
        spec, node = self.spec, self.spec.node
        per_node = spec.gpus_per_node
        cards = [spec.gpus[slot] for slot in group]
        places: dict[int, list[int]] = {}
        for slot in group:
            places.setdefault(slot // per_node, []).append(slot)
        nodes = len(places)
        most = max(places.values(), key=len)
        oldest = min(card.compute_capability for card in cards)
        generation = _generation(oldest)
        direct = peer_to_peer()
        nvlink = self._nvlink(most, cards) * _NVLINK_DATA.get(oldest, _NVLINK_DATA_ELSE) if direct else 0.0
        nic, nics = self._nics(len(most)) if nodes > 1 else (0.0, 0)
        factor = node.fabric.latency_factor if node is not None else None
        return nccl.Paths(
            ranks=len(group),
            nodes=nodes,
            hardware="nvlink" if nvlink else "pcie",
            generation=generation,
            intra=(nvlink or self._pcie(most, direct=direct)) / 1e9,
            nic=nic,
            nics=nics,
            switched=node is None or node.fabric.kind != "nvlink-mesh",
            nvls=bool(nvlink) and self._has_nvls(cards),
            amd=node is not None and "AMD" in node.host.cpu,
            latency_factor=factor if factor is not None else nccl.latency_factor(generation),
        )

    def _nics(self, ranks: int) -> tuple[float, int]:
        """GB/s of a network card, and how many cards a node has for that many of its ranks."""
        node = self.spec.node
        if node is None or node.nics is None:  # nothing is known about the network: 100 Gb/s, NCCL's figure
            return 12.0, 1
        return node.nics.bandwidth / 1e9, max(round(node.nics.count * ranks / self.spec.gpus_per_node), 1)

    def _nvlink(self, slots: Sequence[int], cards: Sequence[GpuProfile]) -> float:
        """NVLink's bytes per second one way from a GPU to the others of the group on its node; 0 without NVLink."""
        node = self.spec.node
        if node is not None:
            if node.fabric.kind == "pcie":
                return 0.0
            one_way = node.fabric.bandwidth / 2
            if node.fabric.kind == "nvlink-mesh":  # only the links to the group's GPUs are used
                others = max(self.spec.gpus_per_node - 1, 1)
                return one_way * (max(len(slots) - 1, 1) / others)
            return one_way
        links = [card.nvlink for card in cards]
        if len({card.id for card in cards}) > 1 or any(link is None for link in links) or not bridged(self.spec, slots):
            return 0.0
        return min(link.bandwidth for link in links if link is not None) / 2

    def _pcie(self, slots: Sequence[int], *, direct: bool) -> float:
        """PCI Express's bytes per second one way, of the slowest GPU of a group on one node.

        Where GPUs cannot copy to each other directly, everything goes through host memory, and GPUs behind one switch
        share its link to the processor; otherwise a ring enters and leaves each switch once.
        """
        node = self.spec.node
        slot = node.pcie if node is not None else None
        rate = min(slower(self.spec.gpus[index].pcie, slot) for index in slots) * PCIE_DATA
        if node is None:
            direct = direct and all(peers(self.spec.gpus[index]) for index in slots)
            return rate if direct else rate * HOST_MEMORY
        if node.fabric.kind == "pcie":
            rate = min(rate, node.fabric.bandwidth / 2 * PCIE_DATA)
        if not (direct and node.pcie.peer_to_peer):
            rate /= max(Counter(index // node.pcie.gpus_per_switch for index in slots).values())
        return rate

    def _has_nvls(self, cards: Sequence[GpuProfile]) -> bool:
        """Whether the switches add up values (NVLink SHARP)."""
        node = self.spec.node
        if node is not None:
            return node.fabric.in_network_reduction
        return all(
            card.nvlink is not None and card.nvlink.generation >= 4 and card.nvlink.links >= 18 for card in cards
        )


def _generation(capability: tuple[int, int]) -> int:
    """The generation of NCCL's tables."""
    if capability >= (10, 0):
        return nccl.BLACKWELL
    if capability >= (9, 0):
        return nccl.HOPPER
    return nccl.AMPERE if capability >= (8, 0) else nccl.VOLTA
