"""The machine's state as data. Panels, the extension and reports read a `Snapshot`, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from fakegpu_lab.hardware.memory_categories import Categories  # noqa: TC001 - pydantic reads the annotation

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Memory(_Frozen):
    """A device's memory, in bytes."""

    total: int = Field(description="what CUDA reports as the card's memory")
    free: int = Field(description="what cudaMemGetInfo reports as free")
    allocated: int = Field(description="held by tensors (torch.cuda.memory_allocated)")
    peak_allocated: int = Field(description="torch.cuda.max_memory_allocated")
    reserved: int = Field(description="held by the caching allocator (torch.cuda.memory_reserved)")
    peak_reserved: int = Field(description="torch.cuda.max_memory_reserved")
    context: int = Field(description="the CUDA context, outside PyTorch")
    alloc_retries: int = Field(description="mallocs that succeeded only after cached blocks were released")
    ooms: int = Field(description="out-of-memory errors raised")
    categories: Categories | None = Field(default=None, description="what the allocated bytes are for, if asked")


class Counters(_Frozen):
    """A device's counters; see `Ledger`."""

    kernels: int
    h2d_count: int
    h2d_bytes: int
    d2h_count: int
    d2h_bytes: int
    p2p_sent_count: int
    p2p_sent_bytes: int
    p2p_received_count: int
    p2p_received_bytes: int
    collective_count: int
    collective_bytes: int
    collective_wait_ns: int
    h2d_ns: int = Field(default=0, description="how long the copies to it took, together")
    d2h_ns: int = Field(default=0, description="the same of copies to the host")
    p2p_sent_ns: int = Field(default=0, description="the same of copies to other devices")
    p2p_sent_to: dict[int, int] = Field(default_factory=dict, description="bytes sent, by the receiver's slot")


class Time(_Frozen):
    """A device's simulated time, in nanoseconds since the machine was enabled."""

    busy_ns: int = Field(description="in which at least one kernel ran, or will, of those launched so far")
    done_ns: int = Field(description="when all that was queued is done")


class DeviceSnapshot(_Frozen):
    """One device."""

    index: int = Field(description="its CUDA ordinal; -1 where CUDA_VISIBLE_DEVICES hides it")
    slot: int = Field(description="its place in the machine, as nvidia-smi counts")
    id: str = Field(description="the profile's id, e.g. a100")
    name: str = Field(description="as torch.cuda.get_device_name says it")
    in_use: bool = Field(description="this process has a CUDA context on it")
    memory: Memory
    counters: Counters
    time: Time

    @classmethod
    def of(cls, device: Device, categories: Categories | None = None) -> DeviceSnapshot:
        """Read `device` now."""
        allocator = device.allocator
        free, total = allocator.memory_info()
        stats: dict[str, Any] = allocator.stats()
        return cls(
            index=device.index,
            slot=device.slot,
            id=device.profile.id,
            name=device.profile.name,
            in_use=device.in_use,
            memory=Memory(
                total=total,
                free=free,
                allocated=allocator.allocated_bytes,
                peak_allocated=allocator.max_allocated_bytes,
                reserved=allocator.reserved_bytes,
                peak_reserved=allocator.max_reserved_bytes,
                context=allocator.device_memory.context_bytes,
                alloc_retries=stats["num_alloc_retries"],
                ooms=stats["num_ooms"],
                categories=categories,
            ),
            counters=Counters(**asdict(device.ledger)),
            time=Time(busy_ns=device.busy, done_ns=device.end),
        )


class Snapshot(_Frozen):
    """The machine's state at one moment; `model_dump(mode="json")` makes it JSON."""

    version: int = Field(default=1, description="of this schema; grows when a field changes its meaning")
    spec: str = Field(description="the text that the machine was made from, e.g. a100:2")
    compute: str
    now_ns: int = Field(description="the simulated time of the host thread that took it")
    devices: tuple[DeviceSnapshot, ...]
    pinned: int = Field(default=0, description="pinned host memory in use (host_memory_stats: active_bytes)")
    pinned_reserved: int = Field(default=0, description="pinned host memory, with what is cached (allocated_bytes)")
    real: bool = Field(default=False, description="real cards, which do not count kernels and copies; times are real")

    @property
    def done_ns(self) -> int:
        """The time at which the host and all queued work are done: how long the program took so far."""
        return max([self.now_ns, *(device.time.done_ns for device in self.devices)])
