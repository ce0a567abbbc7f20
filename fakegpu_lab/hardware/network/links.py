"""The time of a copy: over PCI Express between host and card, over NVLink or PCI Express between cards."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile, Pcie
    from fakegpu_lab.hardware.catalogue.spec import MachineSpec

PCIE_EFFICIENCY = {5: 0.88}
PCIE_EFFICIENCY_ELSE = 0.82
"""The fraction of data among the bytes on the wire, by generation: 25.7 of 31.5 GB/s on an A100 with pinned memory,
12.9 of 15.8 on PCIe 3 (NVIDIA's bandwidthTest, similar on many cards; the rest is packet headers and flow control);
55.4 of 63 on an H200 (Stas Bekman, Machine Learning Engineering, network)."""

PAGEABLE_TO_DEVICE = 10.0e9
PAGEABLE_TO_HOST = 10.8e9
"""Bytes per second of a copy from or to pageable memory: one host thread copies through a pinned buffer, which is
slower than the link (bandwidthTest on an A100-SXM4 server). A link slower than this is the limit."""

NVLINK_EFFICIENCY = 0.87
"""The fraction of NVLink's bandwidth one way that copies get (p2pBandwidthLatencyTest: 275 of 300 GB/s between two
A100, 376 of 450 between two H100)."""

COPY_LATENCY_NS = 1_500
"""Between the start of a copy by a copy engine and its first byte."""

PEER_LATENCY_NS = 2_500
PEER_LATENCY_HOST_NS = 10_000
"""The same between two cards, directly and by way of host memory."""

STAGED_BYTES = 64 * 1024
"""A copy from pageable memory of at most this size is staged as a whole before the call returns ("API synchronization
behavior" in the CUDA Runtime API)."""


def slower(card: Pcie, slot: Pcie | None) -> float:
    """Bytes per second one way on the wire between a card and its host: those of the slower of card and slot."""
    return min(card.bandwidth, slot.bandwidth) if slot is not None else card.bandwidth


def _efficiency(card: Pcie, slot: Pcie | None) -> float:
    generation = min(card.generation, slot.generation) if slot is not None else card.generation
    return PCIE_EFFICIENCY.get(generation, PCIE_EFFICIENCY_ELSE)


def peers(card: GpuProfile) -> bool:
    """Whether loose cards of this kind copy to each other directly, over PCI Express.

    GeForce drivers forbid it; cards without NVLink are taken to be in virtual machines or behind processors that do
    not pass it on.
    """
    return card.segment in ("datacenter", "workstation") and card.nvlink is not None


def bridged(spec: MachineSpec, slots: Iterable[int]) -> bool:
    """Whether NVLink joins these cards outside a node, which are of one kind and have it.

    A bridge joins two cards: of four A100 PCIe the first two, and the other two. Traffic between the pairs goes over
    PCI Express, and so does a ring through more than two cards.
    """
    pairs = set()
    for slot in slots:
        card = spec.gpus[slot]
        if card.nvlink is None or not card.nvlink.bridge:
            return True
        pairs.add(sum(other.id == card.id for other in spec.gpus[:slot]) // 2)
    return len(pairs) == 1


class Links:
    """The links of a machine.

    Parameters
    ----------
    spec
        Its cards. Outside a node, cards with NVLink are joined with all their links: SXM modules all to all, cards with
        a bridge in pairs (see `bridged`).
    """

    def __init__(self, spec: MachineSpec) -> None:
        self.spec = spec
        slot = spec.node.pcie if spec.node is not None else None
        self._host = [slower(card.pcie, slot) * _efficiency(card.pcie, slot) for card in spec.gpus]

    def host_ns(self, device: int, nbytes: int, *, to_device: bool, pinned: bool) -> int:
        """Nanoseconds of a copy of `nbytes` between host memory and a device."""
        rate = self._host[device]
        if not pinned:
            rate = min(rate, PAGEABLE_TO_DEVICE if to_device else PAGEABLE_TO_HOST)
        return COPY_LATENCY_NS + round(nbytes / rate * 1e9)

    def peer_ns(self, source: int, target: int, nbytes: int) -> int:
        """Nanoseconds of a copy between two devices."""
        rate, latency = self.peer(source, target)
        return latency + round(nbytes / rate * 1e9)

    def peer(self, source: int, target: int) -> tuple[float, int]:
        """Bytes per second and latency, ns, of a copy from one device to another."""
        a, b = self.spec.gpus[source], self.spec.gpus[target]
        nvlink = self._nvlink(a, b, source, target)
        if nvlink:
            return nvlink / 2 * NVLINK_EFFICIENCY, PEER_LATENCY_NS
        rate = min(self._host[source], self._host[target])
        per_node = self.spec.gpus_per_node
        node = self.spec.node
        if node is not None and source // per_node != target // per_node:
            nic = node.nics.bandwidth if node.nics is not None else rate
            return min(rate, nic), PEER_LATENCY_HOST_NS
        direct = node.pcie.peer_to_peer if node is not None else peers(a)
        return rate, PEER_LATENCY_NS if direct and a.id == b.id else PEER_LATENCY_HOST_NS

    def nvlink(self, source: int, target: int) -> float:
        """NVLink's bytes per second between two devices, both directions together; 0 without NVLink."""
        return self._nvlink(self.spec.gpus[source], self.spec.gpus[target], source, target)

    def direct(self, source: int, target: int) -> bool:
        """Whether a copy between two devices bypasses host memory."""
        return source == target or self.peer(source, target)[1] == PEER_LATENCY_NS

    def _nvlink(self, a: GpuProfile, b: GpuProfile, source: int, target: int) -> float:
        node = self.spec.node
        if node is not None:
            if node.fabric.kind == "pcie" or source // self.spec.gpus_per_node != target // self.spec.gpus_per_node:
                return 0.0
            if node.fabric.kind == "nvlink-mesh":  # every pair has a part of the links
                return node.fabric.bandwidth / max(self.spec.gpus_per_node - 1, 1)
            return node.fabric.bandwidth
        if a.nvlink is None or b.nvlink is None or a.id != b.id or not bridged(self.spec, (source, target)):
            return 0.0
        return min(a.nvlink.bandwidth, b.nvlink.bandwidth)
