"""`Memory`: the tensors of a launch as stretches of device memory, and the host memory that holds their values.

>>> import numpy as np
>>> memory = Memory([Stretch("x", 0x1000, 0x1040, 0x500000, 4)])
>>> memory.owners(np.array([0x1000, 0x103C, 0x1040]), 4).tolist()
[0, 0, -1]
"""

from __future__ import annotations

import ctypes
import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from fakegpu_lab.driver.base import live_objects
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fakegpu_lab.hardware.device import Device

_Base: Any = torch._C.StorageBase
_SPREAD = 2654435761
"""Knuth's multiplicative hash: multiples of it, modulo a power of 2, are spread evenly."""


class Stretch(NamedTuple):
    """The memory of one storage.

    Attributes
    ----------
    name
        The kernel's argument.
    start, end
        Device addresses: the first byte, and the one after the last.
    host
        Where the values are in the host's memory.
    itemsize
        Bytes of an element.
    tensor
        The device tensor.
    pointer
        The address that the kernel gets: where a view begins within the storage; 0 if it is `start`.
    """

    name: str
    start: int
    end: int
    host: int
    itemsize: int
    tensor: Any = None
    pointer: int = 0

    def tried(self) -> tuple[Stretch, Any]:
        """The same with other memory of the host, for programs that are only tried, and what keeps that memory.

        Nothing is copied: numbers are 0, and integers that may be indices are spread evenly. So what a kernel does to
        the hardware does not depend on values. The host only provides the pages that programs touch.
        """
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        memory = np.frombuffer(mmap.mmap(-1, max(self.end - self.start, 1), flags=flags), dtype=np.uint8)
        if self.tensor is not None and self.tensor.dtype in (torch.int32, torch.int64):
            numbers = memory[: len(memory) // self.itemsize * self.itemsize].view(f"i{self.itemsize}")
            numbers[:] = np.arange(len(numbers), dtype=np.int64) * _SPREAD % 2**31
        return self._replace(host=memory.ctypes.data), memory

    def values(self, dtype: Any) -> NDArray[Any]:
        """The values in the host's memory, as elements of a type."""
        memory: Any = (ctypes.c_char * (self.end - self.start)).from_address(self.host)
        count = (self.end - self.start) // np.dtype(dtype).itemsize
        found: NDArray[Any] = np.frombuffer(memory, dtype=dtype, count=count)
        return found


def stretch(name: str, tensor: FakeCudaTensor) -> Stretch:
    """The memory of a tensor's whole storage: a kernel gets a pointer, and knows nothing of shapes."""
    inner = tensor._inner
    host = _Base.data_ptr(inner.untyped_storage())  # a storage that somebody holds has the device's address itself
    pointer = tensor.data_ptr()
    start = pointer - int(inner.storage_offset()) * inner.element_size()
    return Stretch(name, start, start + tensor._buffer.nbytes, host, inner.element_size(), tensor, pointer)


class Memory:
    """Some stretches of device memory.

    Parameters
    ----------
    stretches
        The arguments'.
    device
        The device on which the kernel runs: it may load pointers into other tensors' memory from its own.
    tried
        Whether programs only try what they access (`Stretch.tried`): no address is wrong then.

    Attributes
    ----------
    stretches
        Each storage once, though several arguments may point into it.
    given
        By the name of an argument, the stretch as it was given.
    """

    def __init__(self, stretches: Sequence[Stretch], device: Device | None = None, *, tried: bool = False) -> None:
        self.tried = tried
        self.given = {one.name: one for one in stretches}
        self.stretches: list[Stretch] = list({one.start: one for one in reversed(stretches)}.values())
        self._device = device
        self._sort()

    def _sort(self) -> None:
        starts = np.array([one.start for one in self.stretches], dtype=np.int64)
        self._order = np.argsort(starts)
        self._starts = starts[self._order]
        self._ends = np.array([one.end for one in self.stretches], dtype=np.int64)[self._order]

    def add_others(self) -> None:
        """Add the memory of all other tensors on the device: the kernel follows a pointer that is no argument's."""
        known = {one.start for one in self.stretches}
        for tensor in live_objects.live(live_objects.subclasses(FakeCudaTensor)):
            if tensor._device is self._device and tensor.layout is torch.strided and tensor.data_ptr():
                one = stretch("", tensor)
                if one.start not in known:
                    known.add(one.start)
                    self.stretches.append(one._replace(name=f"(the tensor at {one.start:#x})"))
        self._sort()

    def inside(self, addresses: NDArray[np.int64], origin: str) -> NDArray[np.int64]:
        """Addresses within the memory of an argument, where others are taken around its end."""
        one = self.given.get(origin)
        if one is None or (int(addresses.min()) >= one.start and int(addresses.max()) < one.end):
            return addresses
        return one.start + (addresses - one.start) % max(one.end - one.start, 1)

    def at(self, address: int) -> Stretch | None:
        """The stretch that an address is in."""
        place = int(np.searchsorted(self._starts, address, side="right")) - 1
        return self.stretches[self._order[place]] if place >= 0 and address < self._ends[place] else None

    def owners(self, addresses: NDArray[np.int64], itemsize: int) -> NDArray[np.int64]:
        """The stretch of each access, by its place in `stretches`; −1 for one that is not wholly inside any."""
        if not len(self.stretches):
            return np.full(addresses.shape, -1, dtype=np.int64)
        places = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (places >= 0) & (addresses + itemsize <= self._ends[places])
        return np.where(inside, self._order[places], -1)

    def nearest(self, address: int) -> Stretch | None:
        """The stretch whose beginning or end is next to an address that is in none of them."""
        if not self.stretches:
            return None
        distance: list[int] = [min(abs(address - one.start), abs(address - one.end)) for one in self.stretches]
        return self.stretches[int(np.argmin(distance))]
