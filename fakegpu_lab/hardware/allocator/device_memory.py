"""The card's memory, as cudaMalloc and the virtual memory calls see it: how much is free, and at which addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


# Addresses look like those of a real process: cudaMalloc's ranges high up, reserved ranges (cuMemAddressReserve)
# lower. Devices are 1 TiB apart, so that no two share an address.
_MALLOC_BASE = 0x7F00_0000_0000
_RESERVE_BASE = 0x0A00_0000_0000
_DEVICE_STRIDE = 1 << 40
_RESERVE_STRIDE = 1 << 44
_ALIGNMENT = 2 * 1024 * 1024


def _unlimited(nbytes: int) -> None:
    """What is behind the memory of a device that has no values."""


class DeviceMemory:
    """What cudaMalloc, cudaFree, cudaMemGetInfo and the virtual memory calls see.

    Attributes
    ----------
    total_bytes
        The card's memory.
    context_bytes
        What this process holds outside the allocator's segments: the CUDA context, libraries, NCCL's buffers.
    other_bytes
        What other processes hold on the same card.
    reserved_bytes
        What the allocator holds.
    on_call
        Called as (name, bytes) after each driver call: "malloc", "free", "map", "unmap". These cost host time, and
        "free" and "unmap" wait for the device.
    behind
        Called with the bytes that are about to be taken; raises if whatever holds the values has no room for them.
    """

    __slots__ = (
        "_holes",
        "_next_range",
        "behind",
        "context_bytes",
        "on_call",
        "other_bytes",
        "reserved_bytes",
        "total_bytes",
    )

    def __init__(self, device: int, total_bytes: int, context_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.context_bytes = context_bytes
        self.other_bytes = 0
        self.reserved_bytes = 0
        self.on_call: Callable[[str, int], None] | None = None
        self.behind: Callable[[int], None] = _unlimited
        base = _MALLOC_BASE - device * _DEVICE_STRIDE
        self._holes = [(base, base + _DEVICE_STRIDE)]
        self._next_range = _RESERVE_BASE + device * _RESERVE_STRIDE

    @property
    def in_use_bytes(self) -> int:
        """What this process holds."""
        return self.context_bytes + self.reserved_bytes

    @property
    def free_bytes(self) -> int:
        """What cudaMemGetInfo calls free."""
        return max(0, self.total_bytes - self.other_bytes - self.in_use_bytes)

    def malloc(self, nbytes: int) -> int | None:
        """Return the lowest address that fits, so that freed ones are used again; None if memory is short."""
        if nbytes > self.free_bytes:
            return None
        self.behind(nbytes)
        span = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        for i, (start, end) in enumerate(self._holes):
            if end - start >= span:
                self._holes[i : i + 1] = [(start + span, end)] if end - start > span else []
                self._change_reserved("malloc", nbytes)
                return start
        return None

    def free(self, address: int, nbytes: int) -> None:
        """Take a range back (cudaFree)."""
        end = address + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        holes: list[tuple[int, int]] = []
        for hole in sorted([*self._holes, (address, end)]):
            if holes and holes[-1][1] == hole[0]:
                holes[-1] = (holes[-1][0], hole[1])
            else:
                holes.append(hole)
        self._holes = holes
        self._change_reserved("free", -nbytes)

    def reserve(self, nbytes: int) -> int:
        """A range of addresses with no memory behind it (cuMemAddressReserve)."""
        address = self._next_range
        self._next_range += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return address

    def map(self, nbytes: int) -> bool:
        """Memory for a part of a reserved range, if there is enough (cuMemCreate, cuMemMap)."""
        if nbytes > self.free_bytes:
            return False
        self.behind(nbytes)
        self._change_reserved("map", nbytes)
        return True

    def unmap(self, nbytes: int) -> None:
        """Take pages back (cuMemUnmap, cuMemRelease)."""
        self._change_reserved("unmap", -nbytes)

    def _change_reserved(self, call: str, change: int) -> None:
        self.reserved_bytes += change
        if self.on_call is not None:
            self.on_call(call, abs(change))


class ExpandableRange:
    """The addresses that an expandable segment may grow into; `page` bytes are mapped or unmapped at a time."""

    __slots__ = ("base", "page", "size")

    def __init__(self, memory: DeviceMemory, page: int) -> None:
        total = memory.total_bytes
        # 1 1/8 of the card: room to map pages at the end after unmapping some at the front
        self.size = -(-(total + total // 8) // page) * page
        self.page = page
        self.base = memory.reserve(self.size)

    def pages_over(self, address: int, size: int) -> tuple[int, int]:
        """The whole pages that touch a range: (address, size)."""
        start, end = (address - self.base) // self.page, -(-(address + size - self.base) // self.page)
        return self.base + start * self.page, (end - start) * self.page

    def pages_inside(self, address: int, size: int) -> tuple[int, int]:
        """The whole pages inside a range: (address, size); size 0 if there are none."""
        start, end = -(-(address - self.base) // self.page), (address + size - self.base) // self.page
        return self.base + start * self.page, max(0, end - start) * self.page


@dataclass
class DeviceOutOfMemory(Exception):  # noqa: N818 - what CUDA calls it
    """The device has no room for a segment. The driver turns these figures into torch.OutOfMemoryError's text.

    Attributes (all sizes in bytes)
    ----------
    device
        The device's index.
    requested
        What the program asked for.
    segment
        The segment that this needed; CUDA's message says that it "tried to allocate" this.
    total, free
        The card's memory, and how much of it is free, as cudaMemGetInfo reports them.
    in_use
        What this process holds, "including non-PyTorch memory".
    allowed
        The limit of set_per_process_memory_fraction, or None.
    allocated
        "allocated by PyTorch"; includes `private_pools`, as in the message.
    private_pools
        Free bytes of private pools: "allocated in private pools (e.g., CUDA Graphs)".
    reserved_unallocated
        "reserved by PyTorch but unallocated".
    """

    device: int
    requested: int
    segment: int
    total: int
    free: int
    in_use: int
    allowed: int | None
    allocated: int
    private_pools: int
    reserved_unallocated: int

    def __str__(self) -> str:
        return (
            f"device {self.device}: no room for a segment of {self.segment} bytes "
            f"({self.free} of {self.total} free, {self.allocated} allocated)"
        )
