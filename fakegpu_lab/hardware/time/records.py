"""The records of a recording: kernels, copies, collectives, allocations and waits, with their times and source lines.

Times are seconds of simulated time since the machine was enabled. The number of records is limited: beyond `LIMIT` of a
kind only the totals are kept, and `Recorder.dropped` counts the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import CodeType
    from typing import TypeAlias

    from fakegpu_lab.hardware.time.access import Access

Stack: TypeAlias = "tuple[tuple[str, str], ...]"
"""The user's own frames, innermost first: (``file:line``, the function's name)."""

Note: TypeAlias = "tuple[str, Sequence[Sequence[int]], CodeType | None, int, str, str, Stack]"
"""What the driver knows about the op that a kernel, a copy or an allocation belongs to: its name and shapes, the user's
code and line, the module's path, the phase (`Record.phase`), the stack."""

LIMIT = 200_000
"""Records kept of each kind. Some 100 MB when all are full."""

Shapes = tuple[tuple[int, ...], ...]


@dataclass(slots=True)
class Record:
    """Something that took simulated time.

    Attributes
    ----------
    name
        The op, such as ``aten::mm``; a copy's name in profilers, such as ``Memcpy HtoD (Pageable -> Device)``; or the
        call that waited.
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
        The path of the `nn.Module` whose forward or backward pass it belongs to; empty outside modules.
    phase
        ``"backward"`` if autograd runs it, ``"recompute"`` if autograd runs it to go backward through it
        (checkpointing's second forward), ``"optimizer"`` in an optimizer's step, ``"move"`` while a module moves to a
        device; else empty.
    """

    name: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    thread: str = ""
    line: str = ""
    module: str = ""
    phase: str = ""

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
        When the host had launched it. It starts later if the stream or the card was busy (`waited_for`).
    dispatched_ns
        When its op reached PyTorch's C++ code; 0 if it belongs to none. Before that, Python ran.
    flops, nbytes
        Floating-point operations; bytes read and written.
    share
        The fraction of the card that it fills.
    shapes
        The shapes of the op's tensors.
    backward
        Whether autograd ran it.
    correlation
        The number of its launch in this recording.
    waited_for
        ``"the stream"`` or ``"the card"`` if it did not start when it was launched; else empty.
    access
        What the kernel did to the hardware, if the user wrote it: bytes, sectors, conflicts, occupancy; else None.
    function
        The name of the function that ran on a real card, such as ``ampere_sgemm_128x64_tn``; empty if it is simulated.
    """

    launched_ns: int = 0
    flops: int = 0
    nbytes: int = 0
    share: float = 1.0
    shapes: Shapes = ()
    backward: bool = False
    correlation: int = 0
    waited_for: str = ""
    access: Access | None = None
    dispatched_ns: int = 0
    function: str = ""


@dataclass(slots=True)
class Transfer(Record):
    """A copy between host and device or between devices.

    Attributes
    ----------
    kind
        ``"h2d"``, ``"d2h"`` or ``"p2p"``.
    source, target
        The devices' ordinals; None is the host.
    pinned
        Whether the host memory was pinned; None between devices.
    content
        A number for the host tensor that was sent and its version: equal numbers mean the same unchanged tensor; 0 if
        unknown.
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
    """One rank's part in a collective: its kernel runs from `start` to `end`.

    From `start` until `joined` it waits for the slowest rank, as NCCL's kernels do; then the bytes move.

    Attributes
    ----------
    group
        The process group's name.
    rank, ranks
        The global rank of this part, and those of all parts.
    number
        The operation's number in its group, from 1: the same on all ranks.
    nbytes
        The collective's size, as NCCL counts it: the larger of a rank's input and output.
    algorithm, protocol
        Such as ``"ring"``, ``"tree"`` or ``"nvls"``, with ``"LL"``, ``"LL128"`` or ``"Simple"``.
    bus_bandwidth
        Bytes per second, as nccl-tests computes it: the traffic of the links, comparable between numbers of ranks.
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
        """When the last rank was ready, seconds."""
        return self.joined_ns / 1e9

    @property
    def waited(self) -> float:
        """How long it waited for the others, seconds."""
        return (self.joined_ns - self.start_ns) / 1e9


@dataclass(slots=True)
class Allocation(Record):
    """A block of device memory, from its allocation until it was freed or the recording ended (`freed` is False).

    Attributes
    ----------
    address, nbytes
        The block's address, and the bytes requested; `block_bytes` is the rounded size.
    held
        The bytes that all tensors of the device held after it.
    number, freed_after
        Its place among the allocations, from 1 (0: it was held before the recording); how many allocations there had
        been when it was freed.
    shape, dtype
        The tensor's, or None and empty if no op returned one: a workspace, a tensor made within an op.
    category
        What it was for when the recording ended, as far as its modules and optimizers say; else empty.
    stack
        The user's frames when this line first called this op with these shapes, innermost first.
    """

    address: int = 0
    nbytes: int = 0
    block_bytes: int = 0
    held: int = 0
    freed: bool = False
    number: int = 0
    freed_after: int = 0
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    category: str = ""
    stack: Stack = ()


@dataclass(slots=True)
class Wait(Record):
    """A host thread's wait for a device; `name` is the call."""


@dataclass(slots=True)
class HostWork(Record):
    """A time in which a host thread was busy (`host_work`, `pin_memory`), slept, or waited for another process.

    It is on no device: `device` is -1.
    """


@dataclass(slots=True)
class FirstUse:
    """The first use of something, such as cuBLAS; see `hardware.first_use`.

    Attributes
    ----------
    name
        What was used.
    ns
        What it took the host, ns; this time is not on the recording's axis.
    thread, line
        The host thread, and the user's line as ``file:number``.
    """

    name: str
    ns: int
    thread: str = ""
    line: str = ""

    @property
    def seconds(self) -> float:
        """What it took the host."""
        return self.ns / 1e9


LOADER_WAIT = "waits for the DataLoader's workers"
"""The name of a `HostWork` in which a host thread waits until a worker has read the next batch."""


@dataclass(slots=True)
class Total:
    """The sum over all kernels, copies or collectives of one name on one device: exact, without a limit."""

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


SIMULATED = "simulated by fakegpu_lab"
"""What the simulated profiler's files say of their times."""


def sum_up(totals: dict[tuple[int, str], Total], records: Iterable[Kernel | Transfer | Collective]) -> None:
    """Add records to the totals of their device and name."""
    for one in records:
        took = one.end_ns - one.start_ns
        totals.setdefault((one.device, one.name), Total()).add(took, getattr(one, "flops", 0), one.nbytes)
