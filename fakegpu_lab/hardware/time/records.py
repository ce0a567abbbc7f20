"""What happened on a machine while somebody recorded: kernels, copies, allocations, waits, with time and place.

Times are seconds of simulated time since the machine was enabled. `Recorder` is told by the clock, the copy engines and
the driver's storages; what it cannot know itself (an op's name, the user's line, the module) the driver tells it.
Details are bounded: beyond `LIMIT` records of a kind only the totals go on, and `dropped` says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType
    from typing import TypeAlias

Note: TypeAlias = "tuple[str, Sequence[Sequence[int]], CodeType | None, int, str, bool]"
"""What the driver knows of the op that a kernel, a copy or an allocation belongs to: its name and shapes, the user's
code and line, the module's path, whether autograd runs it."""

LIMIT = 200_000
"""Records kept of each kind. Some 100 MB when all are full."""

Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Record:
    """Something that took time on a machine.

    Attributes
    ----------
    name
        The op, as ``aten::mm``; ``Memcpy HtoD (Pageable -> Device)``, as profilers call copies; the call that waited.
    device
        The CUDA ordinal.
    stream
        The id of the stream; 0 is the default one.
    start, end
        Seconds.
    thread
        The host thread that launched it.
    line
        The user's line, as ``file:number``; empty if none was found.
    module
        The path of the `nn.Module` whose forward (or whose backward) it belongs to; empty outside modules.
    """

    name: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    thread: str = ""
    line: str = ""
    module: str = ""

    @property
    def start(self) -> float:
        """Seconds."""
        return self.start_ns / 1e9

    @property
    def end(self) -> float:
        """Seconds."""
        return self.end_ns / 1e9

    @property
    def duration(self) -> float:
        """Seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(slots=True)
class Kernel(Record):
    """A kernel.

    Attributes
    ----------
    launched_ns
        When the host had launched it. It started later if the stream was busy (`queued`) or the card was.
    flops, nbytes
        Floating-point operations; bytes read and written.
    share
        The part of the card that it fills.
    shapes
        Of the op's tensors.
    backward
        Whether autograd ran it.
    correlation
        Ties it to its launch: the number of the launch in this recording.
    """

    launched_ns: int = 0
    flops: int = 0
    nbytes: int = 0
    share: float = 1.0
    shapes: Shapes = ()
    backward: bool = False
    correlation: int = 0
    waited_for: str = ""


@dataclass(slots=True)
class Transfer(Record):
    """A copy between host and device or between devices.

    Attributes
    ----------
    kind
        ``"h2d"``, ``"d2h"`` or ``"p2p"``.
    source, target
        Ordinals; None is the host.
    pinned
        Whether the host's side was pinned memory; None between devices.
    content
        Names the host tensor that was sent, and its state: the same number, the same unchanged tensor; else 0.
    """

    kind: str = ""
    source: int | None = None
    target: int | None = None
    nbytes: int = 0
    pinned: bool | None = None
    launched_ns: int = 0
    correlation: int = 0
    content: int = 0

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.nbytes / self.duration if self.duration else 0.0


@dataclass(slots=True)
class Collective(Record):
    """An operation of several ranks, as one of their devices saw it: its kernel runs from `start` to `end`.

    From `start` until `joined` it waits for the slowest rank, as NCCL's kernels do; then the bytes move.

    Attributes
    ----------
    group
        The process group's name.
    rank, ranks
        Whose part this is, and who took part, by their global ranks.
    number
        The group's how manieth operation, from 1: the same on all ranks.
    nbytes
        As NCCL counts a collective's size: of the larger of a rank's input and output.
    algorithm, protocol
        Such as ``"ring"``, ``"tree"`` or ``"nvls"``, with ``"LL"``, ``"LL128"`` or ``"Simple"``.
    bus_bandwidth
        Bytes per second, as nccl-tests count it: what the links carried, whatever the number of ranks.
    """

    group: str = ""
    rank: int = 0
    ranks: tuple[int, ...] = ()
    number: int = 0
    nbytes: int = 0
    algorithm: str = ""
    protocol: str = ""
    bus_bandwidth: float = 0.0
    joined_ns: int = 0
    launched_ns: int = 0
    correlation: int = 0

    @property
    def operation(self) -> str:
        """Such as ``"all_reduce"``."""
        return self.name.rpartition(":")[2]

    @property
    def joined(self) -> float:
        """When the last rank had come, seconds."""
        return self.joined_ns / 1e9

    @property
    def waited(self) -> float:
        """For how long it waited for the others, seconds."""
        return (self.joined_ns - self.start_ns) / 1e9


@dataclass(slots=True)
class Allocation(Record):
    """Device memory that was taken, until it was given back (or until recording ended: `freed` is False).

    Attributes
    ----------
    address, nbytes
        Where it lies, and the bytes asked for; `block_bytes` with rounding.
    held
        The bytes that all tensors of the device held with it.
    """

    address: int = 0
    nbytes: int = 0
    block_bytes: int = 0
    held: int = 0
    freed: bool = False


@dataclass(slots=True)
class Wait(Record):
    """A host thread that waited for a device; `name` says in which call."""


@dataclass(slots=True)
class HostWork(Record):
    """Host-side work that `host_work` stood for; it is on no device: `device` is -1."""


@dataclass(slots=True)
class Total:
    """All kernels, copies or collectives of one name on one device: exact, however many there were."""

    count: int = 0
    ns: int = 0
    flops: int = 0
    nbytes: int = 0

    def add(self, ns: int, flops: int, nbytes: int) -> None:
        """Count one more."""
        self.count += 1
        self.ns += ns
        self.flops += flops
        self.nbytes += nbytes
