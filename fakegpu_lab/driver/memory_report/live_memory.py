"""Device memory that reports every allocation and free to a live display, with what it is for.

While somebody watches, new storages are `WatchedBuffer`s. Each appends a few numbers to `EVENTS` when it is taken or
freed, or turns out to be for something else; `memory_curve` makes curves of them. An event stands where the stream is:
what an op allocates, at the moment at which its kernel can start; what is freed, behind the kernels launched before.

What memory is for is judged when it is taken, from what the program is doing (`begin`). Later facts correct it: a
module registers its parameter, an optimizer keeps its state, `live_categories` looks at the tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.recorder.recorded_buffer import RecordedBuffer, add_older, report_end
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Host

ACTIVATIONS, GRADIENTS, INPUTS, OTHER, WORKSPACE = (
    NAMES.index(name)
    for name in (
        memory_categories.ACTIVATIONS,
        memory_categories.GRADIENTS,
        memory_categories.INPUTS,
        memory_categories.OTHER,
        memory_categories.WORKSPACE,
    )
)
_KINDS = {"input": INPUTS, "workspace": WORKSPACE}

RESERVED = len(NAMES)
"""The code of an event that changes what the allocator has reserved. Below are the categories."""

MOVED = 100
"""The code of an event that moves bytes from one category to another: this, plus 10 × the one, plus the other."""

EVENTS: list[int] = []
"""Four numbers for each event: the device's slot, simulated ns, the code, the change in bytes.

Numbers and not objects, which would keep Python's garbage collector busy. `report` adds all four in one step of C, so
that no thread and no finalizer comes between them.
"""

report = EVENTS.extend

_BITS = 15
"""Of `Buffer.category`, those that have the category. The others have the number of the watch that counts it."""

_watch = 0
"""The number of the watch; storages that an earlier one counted report nothing, until they are counted again."""

_current_node: Any = torch._C._current_autograd_node
_grad_enabled: Any = torch.is_grad_enabled


class Op:
    """The op that a host thread runs (`Host.live`); what it is for is judged when it allocates (`purpose`).

    `args` are its arguments. `end` is when the stream of `device`, the first argument's, was free before it, ns; `ends`
    has those of all devices for ops that may allocate elsewhere.
    """

    __slots__ = ("args", "device", "end", "ends")

    def __init__(self) -> None:
        self.args: tuple[Any, ...] = ()
        self.device: Device | None = None
        self.end = 0
        self.ends: dict[Any, int] = {}


def op_of(host: Host) -> Op:
    """What a host thread is doing."""
    found: Op | None = host.live
    if found is None:
        found = host.live = Op()
    return found


def starts(host: Host, device: Device) -> int:
    """When the running op's kernel can start on a device at the earliest, ns."""
    op = op_of(host)
    end = op.end if device is op.device else op.ends.get(device, 0)
    return max(host.now, end)


def ends(host: Host, device: Device) -> int:
    """When the stream has done what was launched so far, ns."""
    end = host.streams[device].end
    return max(host.now, end)


def renew() -> None:
    """Begin or end a watch: nothing is counted yet, or any more."""
    global _watch
    _watch += _BITS + 1
    EVENTS.clear()


def begin(args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Op:
    """Note that the calling thread begins an op with these arguments; whoever calls takes them away afterwards."""
    host = here.host
    op: Op = host.live or op_of(host)
    first = args[0] if args else None
    if first.__class__ is FakeCudaTensor and not kwargs:
        op.device = device = first._device
        op.end = host.streams[device].end
    else:  # it makes a tensor on another device, perhaps
        op.device = None
        op.ends = {device: stream.end for device, stream in host.streams.items()}
    op.args = args
    return op


def purpose(op: Op) -> int:
    """What the running op allocates for, as far as the program's state says."""
    if not _grad_enabled():
        return OTHER if _current_node() is None else GRADIENTS
    for argument in op.args:
        if argument.__class__ is FakeCudaTensor:
            if argument.requires_grad:
                return ACTIVATIONS
        elif argument.__class__ is list:
            for item in argument:
                if item.__class__ is FakeCudaTensor and item.requires_grad:
                    return ACTIVATIONS
    return OTHER


class _Watched(Buffer):
    """What the two kinds of buffers have in common."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """As `Buffer.kind`; an event when it is set."""
        found: str = _kind.__get__(self)
        return found

    @kind.setter
    def kind(self, kind: str) -> None:
        _kind.__set__(self, kind)
        count_as(self, _KINDS[kind])


_kind: Any = vars(Buffer)["kind"]


class WatchedBuffer(_Watched):
    """A buffer that reports. Every op of a program that is watched makes one, so its base's methods are written out."""

    __slots__ = ()

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.block = None
        self.device = device
        self.allocator = allocator = device.allocator
        self.nbytes = nbytes
        self.block = block = allocator.malloc(nbytes, stream)
        size = block.size
        if size:
            host = here.host
            op: Op = host.live or op_of(host)
            category = purpose(op) if _grad_enabled() else OTHER if _current_node() is None else GRADIENTS
            self.category = _watch + category
            at = op.end if device is op.device else op.ends.get(device, 0)  # `starts`, written out
            now = host.now
            report((device.slot, max(now, at), category, size))

    def __del__(self) -> None:
        try:
            block = self.block
        except AttributeError:  # an exception came before the first line of __init__
            return
        if block is not None:
            size = block.size
            if size:
                category = self.category - _watch
                if category >= 0:
                    device, host = self.device, here.host
                    at, now = host.streams[device].end, host.now
                    report((device.slot, max(now, at), category, -size))
            self.allocator.free(block)

    def resize(self, nbytes: int) -> None:
        """As `Buffer.resize`."""
        _resize(self, nbytes, Buffer)


def _category(buffer: Buffer) -> str:
    """What a buffer is for; empty if it is not watched."""
    category = getattr(buffer, "category", -1) - _watch
    return NAMES[category] if category >= 0 else ""


_free_watched = WatchedBuffer.__del__


def _free_watched_older(self: WatchedBuffer) -> None:
    """`WatchedBuffer.__del__`, for memory that was taken before a recording."""
    report_end(self, _category(self))
    _free_watched(self)


add_older(WatchedBuffer, _free_watched_older)


class WatchedRecordedBuffer(_Watched, RecordedBuffer):
    """A buffer that also reports to a recording."""

    __slots__ = ()

    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        RecordedBuffer.__init__(self, device, nbytes, stream)
        block = self.block
        if block is not None and block.size:
            host = here.host
            category = purpose(op_of(host))
            self.category = _watch + category
            report((device.slot, starts(host, device), category, block.size))

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None and block.size and self.category >= _watch:
            report((self.device.slot, ends(here.host, self.device), self.category - _watch, -block.size))
        if block is not None:
            report_end(self, _category(self))
            self.allocator.free(block)

    def resize(self, nbytes: int) -> None:
        """As `RecordedBuffer.resize`."""
        _resize(self, nbytes, RecordedBuffer)


WATCHED: dict[type[Buffer], type[Buffer]] = {Buffer: WatchedBuffer, RecordedBuffer: WatchedRecordedBuffer}


def _resize(buffer: Buffer, nbytes: int, base: type[Buffer]) -> None:
    before = buffer.block
    base.resize(buffer, nbytes)
    after, device, host = buffer.block, buffer.device, here.host
    at = ends(host, device)
    known = getattr(buffer, "category", -1)
    category = known - _watch if known >= _watch else purpose(op_of(host))
    if after is not None and after.size:
        buffer.category = _watch + category
        report((device.slot, at, category, after.size))  # the new block comes before the old one goes
    if before is not None and before.size and known >= _watch:
        report((device.slot, at, category, -before.size))


def count_as(buffer: Buffer, category: int) -> None:
    """Note that a buffer is for something else than was thought, or that it is watched from now on."""
    block = buffer.block
    if block is None or not block.size:
        return
    device = buffer.device
    known = getattr(buffer, "category", -1)
    if known >= _watch:
        before = known - _watch
        if before != category:
            buffer.category = _watch + category
            report((device.slot, ends(here.host, device), MOVED + 10 * before + category, block.size))
        return
    watched = WATCHED.get(type(buffer))
    if watched is not None:
        buffer.__class__ = watched
    if isinstance(buffer, _Watched):
        buffer.category = _watch + category
        report((device.slot, ends(here.host, device), category, block.size))


def reserved(device: Device, change: int) -> None:
    """Note that the allocator took a segment from the device, or gave one back."""
    report((device.slot, starts(here.host, device), RESERVED, change))
