"""Device memory that reports to the recorder when it is taken and freed; older memory reports when it is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device


class RecordedBuffer(Buffer):
    """A buffer that reports its allocation and its end to the recorder."""

    __slots__ = ()

    @interrupts.whole
    def __init__(self, device: Device, nbytes: int, stream: int = 0) -> None:
        self.block = self.uses = None
        self.device = device
        self.allocator = allocator = device.allocator
        self.nbytes = nbytes
        self.block = block = allocator.malloc(nbytes, stream)
        recorder = device.timeline.recorder
        if recorder is not None and block is not None and block.size:
            small, large = allocator.counters.small.bytes, allocator.counters.large.bytes
            held = small.risen - small.fallen + large.risen - large.fallen  # exact: malloc has put back what was freed
            recorder.allocated(here.host, device.index, stream, block.address, nbytes, block.size, held)

    def __del__(self) -> None:
        try:
            block = self.block
        except AttributeError:  # an exception came before the first line of __init__
            return
        if block is not None:
            recorder = self.device.timeline.recorder
            if recorder is not None:
                recorder.freed(here.host, block.address, self.uses)
            self.allocator.free(block)

    @interrupts.whole
    def resize(self, nbytes: int) -> None:
        """As `Buffer.resize`; the old block's record ends, and a new one begins."""
        old = self.block
        super().resize(nbytes)
        recorder = self.device.timeline.recorder
        block = self.block
        if recorder is not None and block is not None:
            if old is not None:
                recorder.freed(here.host, old.address)
            held = self.allocator.allocated_bytes
            recorder.allocated(here.host, self.device.index, block.stream, block.address, nbytes, block.size, held)


def _free_older(self: Buffer) -> None:
    """`Buffer.__del__`, for memory that was taken before the recording."""
    report_end(self)
    _ways[Buffer][0](self)


def report_end(buffer: Buffer, category: str = "") -> None:
    """Tell the recorder that memory is freed, and what it was for."""
    block = getattr(buffer, "block", None)
    if block is not None:
        recorder = buffer.device.timeline.recorder
        if recorder is not None:
            recorder.freed(here.host, block.address, getattr(buffer, "uses", None), category)


_ways: dict[type[Buffer], tuple[Any, Any]] = {Buffer: (Buffer.__dict__["__del__"], _free_older)}
"""By class of storages that report nothing by themselves: `__del__` without a recording, and during one."""


def add_older(kind: type[Buffer], during: Any) -> None:
    """Have a class of storages be freed by `during` while a recording runs."""
    _ways[kind] = kind.__dict__["__del__"], during


def report_older(wanted: bool) -> None:
    """Have memory that was taken before the recording report when it is freed, or no longer."""
    for kind, ways in _ways.items():
        if kind.__dict__["__del__"] in ways:  # not at Python's end: see `_stop_freeing`
            setattr(kind, "__del__", ways[wanted])  # noqa: B010 - mypy rejects an assignment
