"""A world of which one rank runs, and what that rank needs: the figures of ``fakegpu-lab plan``.

`ranks.implied` counts them.
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
"""Ranks of an implied world: more than any job that was told of."""


@dataclass(frozen=True)
class World:
    """A world of which only one rank runs.

    Attributes
    ----------
    size, rank
        Of the world, and of the process.
    local_size
        Ranks on one node.
    """

    size: int
    rank: int
    local_size: int

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return -(-self.size // self.local_size)


def checked(size: int, rank: int, local_size: int) -> World:
    """The world that was asked for.

    Raises
    ------
    FakeGpuError
        There cannot be such a world, or no such rank in it.
    """
    if not 1 <= size <= MOST:
        raise FakeGpuError(f"A world has 1 to {MOST:,} ranks, and {size:,} were asked for.")
    if not 0 <= rank < size:
        raise FakeGpuError(f"There is no rank {rank:,} in a world of {size:,}: they count from 0 to {size - 1:,}.")
    return World(size, rank, local_size)


class _Told(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Operations(_Told):
    """Operations of one kind, in groups of one size."""

    name: str
    ranks: int
    on_device: bool
    calls: int = 0
    nbytes: int = Field(default=0, description="of all calls, each as nccl-tests count it")
    ns: int = 0
    algorithms: dict[str, int] = Field(default={}, description="how often NCCL would take which")


class Step(_Told):
    """From the end of one optimizer step to the end of the next."""

    ns: int
    kernels_ns: int = Field(description="of kernels that are no collectives")
    collectives_ns: int = Field(description="of collectives")
    busy_ns: int = Field(description="in which at least one of both ran")

    @property
    def exposed_ns(self) -> int:
        """In which collectives ran beside no kernel."""
        return max(self.busy_ns - self.kernels_ns, 0)


class Plan(_Told):
    """A rank of an implied world."""

    world_size: int
    rank: int
    local_size: int = Field(description="ranks on a node")
    steps: list[Step] = []
    operations: list[Operations] = []

    @property
    def nodes(self) -> int:
        """How many nodes the world has."""
        return -(-self.world_size // self.local_size)


current: Plan | None = None
"""The plan of this process, if it is a rank of an implied world."""
