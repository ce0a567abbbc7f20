"""Device memory that reports every allocation and free to a live display, with what it is for.

While somebody watches, new storages are `WatchedBuffer`s. Each appends two numbers to `EVENTS` when it is taken or
freed, or turns out to be for something else; `memory_curve` makes curves of them. An event stands where the stream is:
what an op allocates, at the moment at which its kernel can start; what is freed, behind the kernels launched before.

What memory is for is judged when it is taken, from what the program is doing (`begin`). Later facts correct it: a
module registers its parameter, an optimizer keeps its state, `live_categories` looks at the tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.recorder.recorded_buffer import RecordedBuffer, add_older, report_end
from fakegpu_lab.hardware import memory_categories
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.machine import Machine
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
"""Two numbers for each event: simulated ns, and the change, negative if memory was freed.

From the lowest bit: 8 bits for the code, 8 for the device's slot, 10 for the number of the watch, and then the bytes in
units of 512, the allocator's smallest block. A buffer keeps the change that took it (`Buffer.category`), so freeing it
reports the same with the other sign. Numbers and not objects, which would keep Python's garbage collector busy.
`report` adds both in one step of C, so that no thread and no finalizer comes between them.
"""

_SLOT, _WATCH, _BYTES = 8, 16, 26
"""Where in a change each part begins: its lowest bit. The code comes first."""

_UNIT = _BYTES - 9
"""By how many bits bytes are shifted: those of a block are a multiple of 512."""

_CODE, _SLOTS, _WATCHES = (1 << _SLOT) - 1, (1 << _WATCH - _SLOT) - 1, (1 << _BYTES - _WATCH) - 1

report: Callable[[tuple[int, int]], None] = EVENTS.extend

_watch = 0
"""The number of the watch; what earlier ones counted is left out (`taken`), until it is counted again."""


class Op:
    """The op that a host thread runs (`Host.live`); what it is for is judged when it allocates (`purpose`).

    `args` are its arguments. `end` is when the stream of `device`, the first argument's, was free before it, ns; `ends`
    has those of all devices for ops that may allocate elsewhere. `known` is what it allocates for, if that does not
    depend on the arguments; else -1. Between ops, there are no arguments, and it is `OTHER`.
    """

    __slots__ = ("args", "device", "end", "ends", "known")

    def __init__(self) -> None:
        self.args: tuple[Any, ...] = ()
        self.known = OTHER
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


def renew(machine: Machine | None) -> None:
    """Begin a watch of a machine, of which nothing is counted yet; None ends it: nothing reports any longer."""
    global _watch, report
    _watch = (_watch + 1) & _WATCHES
    EVENTS.clear()
    report = EVENTS.extend if machine is not None else _forget
    for device in machine.cards if machine is not None else ():
        device.events = (_watch << _WATCH) + (device.slot << _SLOT)


def _forget(event: tuple[int, int]) -> None:
    """`report`, while nobody watches."""


class Events(NamedTuple):
    """Events of one card, in order: their times in ns, their codes, and the changes in bytes."""

    ns: NDArray[np.int64]
    codes: NDArray[np.int64]
    changes: NDArray[np.int64]


def taken() -> dict[int, Events]:
    """Take all events; by slot."""
    numbers = EVENTS[:]  # both steps are C's: events that come between them are behind these
    del EVENTS[: len(numbers)]
    if not numbers:
        return {}
    pairs = np.array(numbers, np.int64)
    ns, packed = pairs[::2], pairs[1::2]
    change = np.abs(packed)
    known = (change >> _WATCH) & _WATCHES == _watch
    if not known.all():
        ns, packed, change = ns[known], packed[known], change[known]
    slots, codes = (change >> _SLOT) & _SLOTS, change & _CODE
    changes = (change >> _BYTES << 9) * np.sign(packed)
    return {
        int(slot): Events(*(row[slots == slot] for row in (ns, codes, changes)))
        for slot in np.flatnonzero(np.bincount(slots))
    }


def event(device: Device, code: int, change: int) -> int:
    """The second number of an event."""
    return ((abs(change) << _UNIT) + device.events + code) * (1 if change >= 0 else -1)


def begin_elsewhere(op: Op, host: Host) -> None:
    """Note that a thread begins an op that may allocate on any device."""
    op.device = None
    op.ends = {device: stream.end for device, stream in host.streams.items()}


def purpose(op: Op) -> int:
    """What the running op allocates for, as far as the program's state says."""
    if op.known >= 0:
        return op.known
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
        self.category = 0
        self.device = device
        self.allocator = allocator = device.allocator
        self.nbytes = nbytes
        self.block = block = allocator.malloc(nbytes, stream)
        size = block.size
        if size:
            host = here.host
            op: Op = host.live or op_of(host)
            category = op.known
            if category < 0:
                category = purpose(op)
            at = op.end if device is op.device else op.ends.get(device, 0)  # `starts`, written out
            now = host.now
            self.category = change = (size << _UNIT) + device.events + category
            report((at if at > now else now, change))  # noqa: FURB136 - max() takes as long as all the rest

    def __del__(self) -> None:
        try:
            block = self.block
        except AttributeError:  # an exception came before the first line of __init__
            return
        if block is not None:
            change = self.category
            if change:
                host = here.host
                at, now = host.streams[self.device].end, host.now  # `ends`, written out
                report((at if at > now else now, -change))  # noqa: FURB136
            self.allocator.free(block)

    def resize(self, nbytes: int) -> None:
        """As `Buffer.resize`."""
        _resize(self, nbytes, Buffer)


def _counted(buffer: Buffer) -> int:
    """What a buffer counts as; -1 if it is not watched."""
    change: int = getattr(buffer, "category", 0)
    return change & _CODE if change and (change >> _WATCH) & _WATCHES == _watch else -1


def _category(buffer: Buffer) -> str:
    """What a buffer is for; empty if it is not watched."""
    counted = _counted(buffer)
    return NAMES[counted] if counted >= 0 else ""


def _count(buffer: Buffer, category: int, at: int) -> None:
    """Report that memory was taken."""
    assert buffer.block is not None
    buffer.category = change = event(buffer.device, category, buffer.block.size)
    report((at, change))


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
            _count(self, purpose(op_of(host)), starts(host, device))

    def __del__(self) -> None:
        block = getattr(self, "block", None)
        if block is not None:
            change = getattr(self, "category", 0)
            if change:
                report((ends(here.host, self.device), -change))
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
    at, counted, known = ends(host, device), _counted(buffer), getattr(buffer, "category", 0)
    buffer.category = 0
    if after is not None and after.size:  # the new block comes before the old one goes
        _count(buffer, counted if counted >= 0 else purpose(op_of(host)), at)
    if before is not None and before.size and counted >= 0:
        report((at, -known))


def count_as(buffer: Buffer, category: int) -> None:
    """Note that a buffer is for something else than was thought, or that it is watched from now on."""
    block = buffer.block
    if block is None or not block.size:
        return
    device = buffer.device
    before = _counted(buffer)
    if before == category:
        return
    at = ends(here.host, device)
    if before >= 0:
        buffer.category += category - before
        report((at, event(device, MOVED + 10 * before + category, block.size)))
        return
    watched = WATCHED.get(type(buffer))
    if watched is not None:
        buffer.__class__ = watched
    if isinstance(buffer, _Watched):
        _count(buffer, category, at)


def reserved(device: Device, change: int) -> None:
    """Note that the allocator took a segment from the device, or gave one back."""
    report((starts(here.host, device), event(device, RESERVED, change)))


def found(device: Device, change: int) -> None:
    """Note memory that nobody claims."""
    report((ends(here.host, device), event(device, OTHER, change)))
