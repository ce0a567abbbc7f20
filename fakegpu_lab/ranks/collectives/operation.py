"""One rank's call of an operation, its kind by the names of torch's `OpType`, and the communicator that carries it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.network import nccl
    from fakegpu_lab.hardware.network.fabric import Cost
    from fakegpu_lab.hardware.time.clock import Stream
    from fakegpu_lab.hardware.time.happens_before import Use
    from fakegpu_lab.hardware.transfers.collectives import Part


Tensors = list[torch.Tensor]


@dataclass(eq=False)
class Operation:
    """A call by one rank, on one communicator.

    Attributes
    ----------
    kind
        As `OpType` names it: ``"ALLREDUCE"``, ``"_ALLGATHER_BASE"``, ``"SEND"``, … (see `kinds`).
    channel
        The communicator that carries it.
    rank
        The caller's rank in the group.
    inputs, outputs
        The tensors; their number depends on the kind.
    reduce_op
        How values are combined, or None.
    root, peer
        The root of a rooted operation; the other end of a send or receive. Ranks in the group; else -1.
    splits
        ``(output splits, input splits)`` of an all-to-all.
    tag
        Of a send or receive; NCCL has none.
    asynchronous
        Whether it was called with ``async_op=True``: then it runs on a stream of the communicator.
    batch, bound
        The calls that one NCCL group call made together; whether the process group is bound to a device.
    before
        Operations that must finish before it can start (`start_conditions`).
    number
        Its sequence number among this rank's collectives of the group, from 1.
    line
        The line of the user's program, as ``file:number``.
    done
        Whether the data has arrived.
    error
        Why it will not, once the rank has been told.
    device
        The simulated device of the tensors; None for the CPU.
    stream, part, use
        Set by `cost`: the stream it runs on, its part in the simulated collective, its use of memory (for races).
    after_ns, launched_ns, start_ns, end_ns
        Set by `cost`: the earliest start as far as this rank is concerned, its launch, its start and end.
    waiting
        Streams that wait for it while its end is not known yet.
    made_by
        What had made its inputs, at the call (`results`).
    payload
        What a send sends, as it was at the call.
    description
        What `str` returns after the tensors were released.
    """

    kind: str
    channel: Communicator
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
    error: BaseException | None = None
    device: Device | None = None
    stream: Stream | None = None
    after_ns: int = 0
    launched_ns: int = 0
    start_ns: int = 0
    end_ns: int = 0
    part: Part | None = None
    waiting: list[Stream] = field(default_factory=list)
    use: Use | None = None
    made_by: list[int] = field(default_factory=list)
    payload: Tensors = field(default_factory=list)
    description: str = ""

    def finish(self) -> None:
        """Mark it as done: release the tensors, keep their description."""
        self.description = str(self)
        self.done = True
        self.inputs, self.outputs, self.payload, self.before = [], [], [], []

    @property
    def alone(self) -> bool:
        """Whether NCCL carries it on a communicator of its two ranks: a send or receive that is in no batch."""
        return self.kind in P2P and self.batch is None and not self.bound

    @property
    def global_rank(self) -> int:
        """The caller's rank in the world."""
        return self.channel.ranks[self.rank]

    @property
    def main_tensors(self) -> Tensors:
        """The tensors that messages describe: the inputs, or the outputs where there are no inputs."""
        return self.inputs or self.outputs

    @property
    def nbytes(self) -> int:
        """Its size as NCCL counts it: the larger of what goes in and what comes out, in bytes."""
        return max(sum(map(_nbytes, self.inputs)), sum(map(_nbytes, self.outputs)))

    def __str__(self) -> str:
        """As ``all_reduce of [1024] float32``."""
        if self.description:
            return self.description
        text = KINDS[self.kind].function
        tensors = self.main_tensors
        if tensors and self.kind != "BARRIER":
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors[:3])
            more = ", …" if len(tensors) > 3 else ""
            text += f" of {shapes}{more} {str(tensors[0].dtype).removeprefix('torch.')}"
        if self.kind in P2P and self.peer >= 0:
            preposition = {"SEND": "to", "RECV": "from"}.get(self.kind, "with")
            text += f" {preposition} rank {self.channel.ranks[self.peer]}"
        return text


def _nbytes(tensor: torch.Tensor) -> int:
    if tensor.layout is torch.sparse_coo:
        return tensor._indices().nbytes + tensor._values().nbytes
    return tensor.nbytes


class Communicator(ABC):
    """One backend of a process group: its members, and what each of them has called.

    Parameters
    ----------
    name
        The group's name: ``"0"`` for the default group.
    backend
        ``"nccl"`` or ``"gloo"``.
    ranks
        The members' global ranks, by their rank in the group.
    description
        torch's description of the group, such as ``default_pg``.

    Attributes
    ----------
    numbers
        How many collectives each member has called.
    history
        By member, its latest operations.
    streams
        The communicator's own streams, for `cost`.
    connected
        By member that has used it, alone or with the other end of a send or receive: the device and the bytes that NCCL
        holds there, for `cost`.
    failure
        Why it was aborted: the error of an operation that timed out or lost another rank; else empty.
    warned
        Members that were warned of a tensor that is not contiguous.
    put_off
        Takes what `Work.wait` should do, and does it later (`torchrun.later_waits`); usually None.
    """

    put_off: Callable[[Callable[[], None]], None] | None = None

    def __init__(self, name: str, backend: str, ranks: tuple[int, ...], description: str = "") -> None:
        self.name = name
        self.backend = backend
        self.ranks = ranks
        self.description = description
        self.numbers = [0] * len(ranks)
        self.history: list[deque[Operation]] = [deque(maxlen=64) for _ in ranks]
        self.streams: dict[Any, Stream] = {}
        self.connected: dict[tuple[int, ...], tuple[Device, int]] = {}
        self.failure = ""
        self.warned: set[int] = set()

    def disconnect(self, member: int | None = None) -> None:
        """Give back the device memory of a member's connections; by default, of all members'."""
        for key in [key for key in self.connected if member is None or key[0] == member]:
            device, nbytes = self.connected.pop(key)
            device.allocator.device_memory.context_bytes -= nbytes

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """The group was destroyed: end what carries its operations."""

    def abort(self) -> None:
        """As `close`, without what is under way."""
        self.close()

    @property
    def known_as(self) -> str:
        """What messages call the group."""
        if self.description == "default_pg":
            return "the default group"
        inside = ", ".join(map(str, self.ranks))
        return f"group {self.name!r} of ranks {inside}"

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.ranks)

    def expected(self, operation: Operation) -> Cost | None:
        """What an operation between devices will cost, if rank r has the r-th device; None if that is not known.

        Known when it is called, without what the other ranks say.
        """
        return None

    @abstractmethod
    def issue(self, operation: Operation) -> None:
        """A member calls an operation."""

    @abstractmethod
    def finish(self, operation: Operation, seconds: float | None = None) -> None:
        """Wait until an operation is done; at most `seconds`, if other ranks are processes."""


_Function = TypeVar("_Function", bound=Callable[..., None])


class Kind(NamedTuple):
    """One kind of operation.

    Attributes
    ----------
    function
        The function of torch.distributed, as messages name it.
    model
        The operation whose time the model of NCCL computes.
    movement
        How data moves: kinds that differ only in their arguments share one. Empty between two ranks.
    """

    function: str
    model: nccl.Operation
    movement: str = ""


KINDS = {
    "ALLREDUCE": Kind("all_reduce", "all_reduce", "all_reduce"),
    "ALLREDUCE_COALESCED": Kind("all_reduce (coalesced)", "all_reduce", "all_reduce"),
    "BROADCAST": Kind("broadcast", "broadcast", "broadcast"),
    "REDUCE": Kind("reduce", "reduce", "reduce"),
    "ALLGATHER": Kind("all_gather", "all_gather", "all_gather"),
    "_ALLGATHER_BASE": Kind("all_gather_into_tensor", "all_gather", "all_gather_into_tensor"),
    "ALLGATHER_COALESCED": Kind("all_gather_into_tensor (coalesced)", "all_gather", "all_gather_into_tensor"),
    "GATHER": Kind("gather", "gather", "gather"),
    "SCATTER": Kind("scatter", "scatter", "scatter"),
    "REDUCE_SCATTER": Kind("reduce_scatter", "reduce_scatter", "reduce_scatter"),
    "_REDUCE_SCATTER_BASE": Kind("reduce_scatter_tensor", "reduce_scatter", "reduce_scatter_tensor"),
    "REDUCE_SCATTER_COALESCED": Kind("reduce_scatter_tensor (coalesced)", "reduce_scatter", "reduce_scatter_tensor"),
    "ALLTOALL": Kind("all_to_all", "all_to_all", "all_to_all"),
    "ALLTOALL_BASE": Kind("all_to_all_single", "all_to_all", "all_to_all_single"),
    "BARRIER": Kind("barrier", "barrier", "barrier"),
    "MONITORED_BARRIER": Kind("monitored_barrier", "barrier", "barrier"),
    "SEND": Kind("send", "send"),
    "RECV": Kind("recv", "recv"),
    "RECVANYSOURCE": Kind("recv from any rank", "recv"),
}
P2P = frozenset(name for name, kind in KINDS.items() if not kind.movement)
"""Sends and receives."""


def by_kind(**functions: _Function) -> dict[str, _Function]:
    """The function for each kind, given one for each movement; kinds without one are left out.

    >>> by_kind(barrier=print)
    {'BARRIER': <built-in function print>, 'MONITORED_BARRIER': <built-in function print>}
    """
    return {name: functions[kind.movement] for name, kind in KINDS.items() if kind.movement in functions}
