"""`plan()`: one rank of a large job run alone in this process, as ``fakegpu-lab plan`` runs a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.hardware.snapshot import Snapshot
    from fakegpu_lab.ranks.planning.figures import Operations, Plan, Step


@dataclass(frozen=True, repr=False)
class Planned:
    """What one rank needed. As the last line of a cell, it shows a table.

    Attributes
    ----------
    result
        What the function returned.
    plan
        The figures: ``plan.steps``, ``plan.operations``, ``plan.nodes``.
    snapshot
        The machine when the function had ended.
    """

    result: Any
    plan: Plan
    snapshot: Snapshot

    @property
    def memory(self) -> int:
        """The most bytes that tensors held on the rank's card."""
        return max(device.memory.peak_allocated for device in self.snapshot.devices)

    @property
    def step(self) -> Step:
        """The last step of an optimizer.

        Raises
        ------
        FakeGpuError
            No optimizer took a step.
        """
        if not self.plan.steps:
            raise FakeGpuError("No optimizer took a step: call optimizer.step() in the function that is planned.")
        return self.plan.steps[-1]

    @property
    def seconds(self) -> float:
        """Simulated seconds of the last step."""
        return self.step.ns / 1e9

    @property
    def exposed(self) -> float:
        """Seconds of the last step in which collectives ran and no other kernel did."""
        return self.step.exposed_ns / 1e9

    @property
    def operations(self) -> list[Operations]:
        """What the rank called, by kind and size of group."""
        return self.plan.operations

    @property
    def table(self) -> Table:
        """The table that ``fakegpu-lab plan`` prints."""
        from fakegpu_lab.report import plan_table

        return plan_table.summary(self.snapshot, self.plan)

    def __repr__(self) -> str:
        return str(self.table)


def plan(fn: Callable[..., Any], world_size: int, *args: Any, rank: int = 0) -> Planned:
    """Run ``fn(*args)`` as one rank of `world_size`; the others do not run, and are assumed to do the same.

    The function finds ``RANK``, ``LOCAL_RANK``, ``WORLD_SIZE`` and so on, as under torchrun, and calls
    ``init_process_group("nccl")`` itself. The enabled machine is one node; as many of them are assumed as the ranks
    need, each with as many ranks as GPUs. What this process holds on the rank's card already counts as its memory, too.

    Raises
    ------
    FakeGpuError
        No machine is enabled, that many ranks cannot be planned, or this process is already a rank of something.
    """
    __tracebackhide__ = True
    spec = session.machine().spec
    from fakegpu_lab.ranks.planning import figures, one_rank  # imports torch, so only here

    world = figures.checked(world_size, rank, min(spec.gpus_per_node, world_size))
    result, found = one_rank.run(world, fn, *args)
    return Planned(result, found, session.snapshot())
