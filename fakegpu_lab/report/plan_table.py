"""The table that ``fakegpu-lab plan`` prints: a rank's memory and time, and its share of the collectives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, size
from fakegpu_lab.ranks.planning.figures import ASSUMED

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import Snapshot
    from fakegpu_lab.ranks.planning.figures import Plan


def summary(snapshot: Snapshot, plan: Plan) -> Table:
    """A rank's memory and time in the title, its collectives in the rows."""
    device = max(snapshot.devices, key=lambda device: device.memory.peak_reserved)
    memory = device.memory
    nodes = (
        f"{plan.nodes:,} nodes of {plan.local_size} {device.name}" if plan.nodes > 1 else f"one node of {device.name}"
    )
    title = [f"fakegpu-lab plan: rank {plan.rank:,} of {plan.world_size:,}, on {nodes}"]
    title.append(
        f"memory: at most {size(memory.peak_allocated)} allocated, {size(memory.peak_reserved)} reserved, "
        f"of {capacity(memory.total)}"
    )
    if plan.steps:
        step = plan.steps[-1]
        title.append(
            f"step:   {duration(step.ns)} (the last of {len(plan.steps)}): kernels {duration(step.kernels_ns)}, "
            f"collectives {duration(step.collectives_ns)}, {duration(step.exposed_ns)} of them not hidden by kernels"
        )
    else:
        title.append("step:   no optimizer took one")
    headers = ["operation", "ranks", "calls", "bytes", "time", "algorithm"]
    rows = [
        [
            one.name,
            f"{one.ranks:,}",
            f"{one.calls:,}",
            size(one.nbytes),
            duration(one.ns),
            ", ".join(name for name in one.algorithms if name) or "–",
        ]
        for one in plan.operations
    ]
    return Table(headers, rows, "\n".join(title), frozenset(range(1, 5)), ASSUMED)
