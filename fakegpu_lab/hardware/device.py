"""One simulated GPU: its profile, its memory, its counters."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.allocator import CachingAllocator
from fakegpu_lab.hardware.ledger import Ledger

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator_settings import AllocatorSettings
    from fakegpu_lab.hardware.profile import GpuProfile


class Device:
    """A GPU of the machine.

    Attributes
    ----------
    index
        Its CUDA ordinal, from 0; -1 where ``CUDA_VISIBLE_DEVICES`` hides it (`Machine.look`).
    slot
        Its place in the machine, from 0, as nvidia-smi counts.
    profile
        What kind of card it is.
    allocator
        Its memory, in bytes.
    ledger
        What it did.
    retired
        Empty while the device can be used; afterwards the sentence that a tensor on it raises (the machine was
        replaced or switched off, or this is a forked child). The dispatch path tests it at every call.
    stream
        The id of the current stream; 0 is the default one.
    workspaces
        cuBLAS workspaces by stream, held until the machine goes, as PyTorch holds them.
    """

    __slots__ = ("allocator", "index", "ledger", "profile", "retired", "slot", "stream", "workspaces")

    def __init__(self, index: int, profile: GpuProfile, settings: AllocatorSettings | None = None) -> None:
        self.index = self.slot = index
        self.profile = profile
        self.retired = ""
        self.allocator = CachingAllocator(
            index, profile.total_memory_bytes, context_bytes=profile.context_bytes, settings=settings
        )
        self.ledger = Ledger()
        self.workspaces: dict[int, object] = {}
        self.stream = 0

    @property
    def uuid(self) -> uuid.UUID:
        """Derived from the card and its place, so that it is the same in every run."""
        return uuid.uuid5(uuid.NAMESPACE_DNS, f"{self.profile.id}.{self.slot}.fakegpu-lab")

    def number(self, index: int) -> None:
        """Give it another CUDA ordinal; only while nobody uses it."""
        self.index = self.allocator.device = index

    def __repr__(self) -> str:
        return f"<Device cuda:{self.index} {self.profile.name}>"
