"""The tables of the catalogue: the GPUs and nodes that ``fakegpu-lab profiles`` lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity
from fakegpu_lab.hardware.catalogue import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.catalogue.profile import GpuProfile, NodeProfile


def matching(word: str = "") -> tuple[list[GpuProfile], list[NodeProfile]]:
    """All profiles whose id, name, aliases or architecture contain `word`; all profiles if it is empty.

    Raises
    ------
    FakeGpuError
        No profile contains it; the message suggests the nearest names.
    """
    wanted = lookup.key(word)
    gpus = [card for card in map(lookup.gpu, lookup.catalogue("gpus")) if _has(wanted, card, card.architecture)]
    nodes = [node for node in map(lookup.node, lookup.catalogue("nodes")) if _has(wanted, node)]
    if not gpus and not nodes:
        lookup.find(word)
    return gpus, nodes


def _has(wanted: str, profile: GpuProfile | NodeProfile, *others: str) -> bool:
    return any(wanted in lookup.key(name) for name in (profile.id, profile.name, *profile.aliases, *others))


def gpu_table(gpus: Sequence[GpuProfile]) -> Table:
    """One row for each kind of GPU, with the figures to choose by."""
    rows = [
        [
            card.id,
            card.name,
            capacity(card.total_memory_bytes),
            "{}.{}".format(*card.compute_capability),
            f"{card.memory_bandwidth / 1e9:,.0f} GB/s",
        ]
        for card in gpus
    ]
    headers = ["id", "name", "memory", "compute capability", "bandwidth"]
    return Table(headers, rows, "GPUs", frozenset({2, 3, 4}))


def node_table(nodes: Sequence[NodeProfile]) -> Table:
    """One row for each node."""
    rows = [
        [
            node.id,
            node.name,
            ", ".join(f"{group.count} x {group.gpu}" for group in node.gpus),
            node.fabric.kind,
            f"{node.fabric.bandwidth / 1e9:,.0f} GB/s",
        ]
        for node in nodes
    ]
    return Table(["id", "name", "GPUs", "fabric", "bandwidth a GPU"], rows, "Nodes", frozenset({4}))


def tables(word: str = "") -> list[Table]:
    """The tables of everything that `matching` finds, without empty ones."""
    gpus, nodes = matching(word)
    return [table for table in (gpu_table(gpus), node_table(nodes)) if table.rows]
