"""``fakegpu-lab plan``: what one rank of a large job needs, read off a run of that rank alone."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fakegpu_lab import inherit
from fakegpu_lab.cli import runner
from fakegpu_lab.hardware.spec import parse_spec
from fakegpu_lab.plan import ASSUMED, checked

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import Snapshot
    from fakegpu_lab.plan import Plan
    from fakegpu_lab.table import Table


def run(request: runner.Request, world_size: int, rank: int) -> None:
    """Run the program as that rank of a world that is implied, and end this process as it ended.

    Raises
    ------
    FakeGpuError
        For anything wrong with the request, before the program starts.
    """
    spec = parse_spec(request.devices, memory=request.memory)
    world = checked(world_size, rank, min(spec.gpus_per_node, world_size))
    os.environ[inherit.WORLD] = f"{world.size}:{world.rank}:{world.local_size}"
    runner.run(request)


def summary(snapshot: Snapshot, plan: Plan) -> Table:
    """Tell of a rank's memory and time, and of what it did together with the others."""
    from fakegpu_lab.amounts import duration, size
    from fakegpu_lab.table import Table

    device = max(snapshot.devices, key=lambda device: device.memory.peak_reserved)
    memory = device.memory
    nodes = (
        f"{plan.nodes:,} nodes of {plan.local_size} {device.name}" if plan.nodes > 1 else f"one node of {device.name}"
    )
    title = [f"fakegpu-lab plan: rank {plan.rank:,} of {plan.world_size:,}, on {nodes}"]
    title.append(
        f"memory: at most {size(memory.peak_allocated)} allocated, {size(memory.peak_reserved)} reserved, "
        f"of {size(memory.total)}"
    )
    if plan.steps:
        step = plan.steps[-1]
        title.append(
            f"step:   {duration(step.ns)} (the last of {len(plan.steps)}): kernels {duration(step.kernels_ns)}, "
            f"collectives {duration(step.collectives_ns)}, {duration(step.exposed_ns)} of them beside no kernel"
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
