"""One rank's call of an operation: what it gave, where in its program, and how far it has come."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.recorder.recording import is_users

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Stream
    from fakegpu_lab.hardware.time.happens_before import Use
    from fakegpu_lab.hardware.transfers.collectives import Part
    from fakegpu_lab.ranks.collectives.channel import Channel

Tensors = list[torch.Tensor]

P2P = frozenset(("SEND", "RECV", "RECVANYSOURCE"))


@dataclass(eq=False)
class Operation:
    """A call by one rank, on one channel.

    Attributes
    ----------
    kind
        As `OpType` names it: ``"ALLREDUCE"``, ``"_ALLGATHER_BASE"``, ``"SEND"``, …
    channel
        The backend of a group that carries it.
    rank
        Who called, by its rank in the group.
    inputs, outputs
        The tensors; which of them there are, and how many, depends on the kind.
    reduce_op
        How values are put together, or None.
    root, peer
        The root of a rooted operation; the other end of a send or receive. Ranks in the group; else -1.
    splits
        ``(output splits, input splits)`` of an all-to-all.
    tag
        Of a send or receive; NCCL has none.
    asynchronous
        Whether it was called with ``async_op=True``: then it runs on a stream of its own.
    batch, bound
        The calls that were made as one with it (NCCL's group call); whether its group is bound to a device.
    before
        What must be over before it can start (`queues`).
    number
        Its sequence number: the how manieth of the group's, from 1, by this rank.
    line
        The line of the user's program, as ``file:number``.
    done
        Whether the data is there.
    device
        The simulated device that the tensors are on; None for the CPU.
    stream, part, after_ns, start_ns, end_ns, waiting, use
        What `cost` keeps: the stream it runs on, the earliest time at which it can start as far as this rank is
        concerned, when it started and ended, streams that wait for it though nobody knows yet when it ends,
        its use of memory for whoever looks for races.
    """

    kind: str
    channel: Channel
    rank: int
    inputs: Tensors
    outputs: Tensors
    reduce_op: Any = None
    root: int = -1
    peer: int = -1
    splits: tuple[Sequence[int], Sequence[int]] = ((), ())
    tag: int = 0
    asynchronous: bool = False
    batch: list[Operation] | None = None
    bound: bool = False
    before: list[Operation] = field(default_factory=list)
    number: int = 0
    line: str = ""
    done: bool = False
    device: Device | None = None
    stream: Stream | None = None
    after_ns: int = 0
    launched_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    part: Part | None = None
    waiting: list[Stream] = field(default_factory=list)
    use: Use | None = None
    payload: Tensors = field(default_factory=list)
    told: str = ""

    def finish(self) -> None:
        """The data is there: let go of the tensors, and keep only what is told of them."""
        self.told = str(self)
        self.done = True
        self.inputs, self.outputs, self.payload, self.before = [], [], [], []

    @property
    def global_rank(self) -> int:
        """Who called, by its rank in the world."""
        return self.channel.ranks[self.rank]

    @property
    def shown(self) -> Tensors:
        """The tensors by which people know it."""
        return self.inputs or self.outputs

    @property
    def nbytes(self) -> int:
        """Its size as NCCL counts it: the larger of what goes in and what comes out, in bytes."""
        return max(sum(t.nbytes for t in self.inputs), sum(t.nbytes for t in self.outputs))

    @property
    def shapes(self) -> list[list[int]]:
        """The shapes of its tensors."""
        return [list(tensor.shape) for tensor in self.shown]

    def __str__(self) -> str:
        """As ``all_reduce of [1024] float32``."""
        if self.told:
            return self.told
        shapes = ", ".join(str(shape) for shape in self.shapes[:3]) + (", …" if len(self.shapes) > 3 else "")
        dtype = f" {str(self.shown[0].dtype).removeprefix('torch.')}" if self.shown else ""
        of = f" of {shapes}{dtype}" if self.shown and self.kind != "BARRIER" else ""
        where = f" with rank {self.channel.ranks[self.peer]}" if self.kind in P2P and self.peer >= 0 else ""
        if self.kind == "SEND":
            where = where.replace("with", "to")
        elif self.kind == "RECV":
            where = where.replace("with", "from")
        return f"{NAMES.get(self.kind, self.kind.lower())}{of}{where}"


NAMES = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce (coalesced)",
    "BROADCAST": "broadcast",
    "REDUCE": "reduce",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "all_gather_into_tensor",
    "ALLGATHER_COALESCED": "all_gather_into_tensor (coalesced)",
    "GATHER": "gather",
    "SCATTER": "scatter",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "reduce_scatter_tensor",
    "REDUCE_SCATTER_COALESCED": "reduce_scatter_tensor (coalesced)",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all_single",
    "BARRIER": "barrier",
    "MONITORED_BARRIER": "monitored_barrier",
    "SEND": "send",
    "RECV": "recv",
    "RECVANYSOURCE": "recv from any rank",
}
"""What the functions of torch.distributed are called, by kind."""


def user_line() -> str:
    """The innermost line of the user's program that the calling thread is in, as ``file:number``; or empty."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
