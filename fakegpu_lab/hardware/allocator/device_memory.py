"""The simulated card behind the allocator: how much memory is left, and at which addresses it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


# Addresses look like a real process's: cudaMalloc's ranges high up, reserved ranges (cuMemAddressReserve)
# lower; 1 TiB apart for each device, so that no two devices share an address.
_MALLOC_BASE = 0x7F00_0000_0000
_RESERVE_BASE = 0x0A00_0000_0000
_DEVICE_STRIDE = 1 << 40
_RESERVE_STRIDE = 1 << 44
_ALIGNMENT = 2 * 1024 * 1024


class DeviceMemory:
    """What cudaMalloc, cudaFree, cudaMemGetInfo and the virtual memory calls see.

    Attributes
    ----------
    total_bytes
        The card's memory.
    context_bytes
        What this process holds besides the allocator's segments: the CUDA context, libraries, NCCL's buffers.
    other_bytes
        What other processes hold on the same card.
    reserved_bytes
        What the allocator holds.
    on_call
        Called as (name, bytes) after each of the driver's calls "malloc", "free", "map" and "unmap", which
        cost host time and, for "free" and "unmap", wait for the device.
    """

    __slots__ = ("_holes", "_next_range", "context_bytes", "on_call", "other_bytes", "reserved_bytes", "total_bytes")

    def __init__(self, device: int, total_bytes: int, context_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.context_bytes = context_bytes
        self.other_bytes = 0
        self.reserved_bytes = 0
        self.on_call: Callable[[str, int], None] | None = None
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
        """Give the lowest address that fits, so that freed ones come back, or None if memory is short."""
        if nbytes > self.free_bytes:
            return None
        span = -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        for i, (start, end) in enumerate(self._holes):
            if end - start >= span:
                self._holes[i : i + 1] = [(start + span, end)] if end - start > span else []
                self._hold("malloc", nbytes)
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
        self._hold("free", -nbytes)

    def reserve(self, nbytes: int) -> int:
        """A range of addresses with no memory behind it (cuMemAddressReserve)."""
        address = self._next_range
        self._next_range += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return address

    def map(self, nbytes: int) -> bool:
        """Memory for a part of a reserved range, if there is enough (cuMemCreate, cuMemMap)."""
        if nbytes > self.free_bytes:
            return False
        self._hold("map", nbytes)
        return True

    def unmap(self, nbytes: int) -> None:
        """Take pages back (cuMemUnmap, cuMemRelease)."""
        self._hold("unmap", -nbytes)

    def _hold(self, call: str, change: int) -> None:
        self.reserved_bytes += change
        if self.on_call is not None:
            self.on_call(call, abs(change))
