"""The memory, time and operations of one rank in an implied world: the figures of ``fakegpu-lab plan``.

`implied_ranks` fills them in.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.hardware.errors import FakeGpuError

ASSUMED = (
    "Assumed: every other rank does the same as this one, at the same time, with equal shapes;\n"
    "all nodes are like this one, and nobody else uses the network. Memory is counted as PyTorch's\n"
    "allocator counts it, without what NCCL takes for itself; times are those of the model."
)


MOST = 1 << 17
"""Ranks of an implied world: more than any published job has had."""


@dataclass(frozen=True)
class World:
    """A world of which only one rank runs.

    Attributes
    ----------
    size, rank
        Of the world; of this process.
    local_size
        Ranks on one node.
    """

    size: int
    rank: int
    local_size: int

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return -(-self.size // self.local_size)


def checked(size: int, rank: int, local_size: int) -> World:
    """A world with these numbers.

    Raises
    ------
    FakeGpuError
        The size is impossible, or the rank is not in it.
    """
    if not 1 <= size <= MOST:
        raise FakeGpuError(f"A world has from 1 to {MOST:,} ranks, not {size:,}.")
    if not 0 <= rank < size:
        raise FakeGpuError(f"There is no rank {rank:,} in a world of {size:,}: they count from 0 to {size - 1:,}.")
    return World(size, rank, local_size)


class _Figures(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Operations(_Figures):
    """Operations of one kind, in groups of one size."""

    name: str
    ranks: int
    on_device: bool
    calls: int = 0
    nbytes: int = Field(default=0, description="of all calls, each as nccl-tests count it")
    ns: int = 0
    algorithms: dict[str, int] = Field(default={}, description="how often NCCL would take which")


class Step(_Figures):
    """From the end of one optimizer step to the end of the next."""

    ns: int
    kernels_ns: int = Field(description="of kernels that are no collectives")
    collectives_ns: int = Field(description="of collectives")
    busy_ns: int = Field(description="in which at least one of both ran")

    @property
    def exposed_ns(self) -> int:
        """Nanoseconds in which collectives ran and no kernel did."""
        return max(self.busy_ns - self.kernels_ns, 0)


class Plan(_Figures):
    """A rank of an implied world."""

    world_size: int
    rank: int
    local_size: int = Field(description="ranks on a node")
    steps: list[Step] = []
    operations: list[Operations] = []

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return -(-self.world_size // self.local_size)


current: Plan | None = None
"""The plan of this process, if it is a rank of an implied world."""
