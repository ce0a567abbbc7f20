"""What `numba.cuda` offers outside a kernel: devices, contexts, memory, streams, events."""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.kernels.numba_cuda import device_arrays, streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

MemoryInfo = namedtuple("MemoryInfo", "free,total")  # noqa: PYI024 - numba's
"""Free and total memory of a card, in bytes."""


class CudaDevice:
    """numba's `Device`. Its attributes in capitals are the driver's, as torch has them."""

    def __init__(self, index: int) -> None:
        self.id = index

    @property
    def _properties(self) -> Any:
        return torch.cuda.get_device_properties(self.id)

    @property
    def name(self) -> bytes:
        """The card's name."""
        return str(self._properties.name).encode()

    @property
    def uuid(self) -> str:
        """The card's UUID."""
        return f"GPU-{self._properties.uuid}"

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Such as (8, 0)."""
        return torch.cuda.get_device_capability(self.id)

    def reset(self) -> None:
        """Reset the device: `fakegpu_lab.reset` does that for the simulated ones."""

    def __getattr__(self, name: str) -> Any:
        own = current.device(self.id).profile
        known = {
            "MULTIPROCESSOR_COUNT": own.sm_count,
            "WARP_SIZE": own.warp_size,
            "MAX_THREADS_PER_BLOCK": 1024,
            "MAX_BLOCK_DIM_X": 1024,
            "MAX_BLOCK_DIM_Y": 1024,
            "MAX_BLOCK_DIM_Z": 64,
            "MAX_GRID_DIM_X": 2**31 - 1,
            "MAX_GRID_DIM_Y": 65_535,
            "MAX_GRID_DIM_Z": 65_535,
            "MAX_SHARED_MEMORY_PER_BLOCK": own.shared_mem_per_block,
            "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": own.shared_mem_per_sm,
            "MAX_THREADS_PER_MULTI_PROCESSOR": own.max_threads_per_sm,
            "MAX_REGISTERS_PER_BLOCK": own.regs_per_sm,
            "COMPUTE_CAPABILITY_MAJOR": own.compute_capability[0],
            "COMPUTE_CAPABILITY_MINOR": own.compute_capability[1],
        }
        if name not in known:
            raise AttributeError(name)
        return known[name]

    def __repr__(self) -> str:
        return f"<CUDA device {self.id} '{self.name.decode()}'>"


class Context:
    """numba's `Context`, also what ``cuda.gpus[i]`` is: use it in a `with` block to make its device current."""

    def __init__(self, index: int) -> None:
        self.device = CudaDevice(index)
        self._before: list[int] = []

    @property
    def id(self) -> int:
        """The device's ordinal."""
        return self.device.id

    @property
    def name(self) -> bytes:
        """The card's name."""
        return self.device.name

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Such as (8, 0)."""
        return self.device.compute_capability

    def get_memory_info(self) -> MemoryInfo:
        """Free and total bytes."""
        return MemoryInfo(*torch.cuda.mem_get_info(self.id))

    def synchronize(self) -> None:
        """Wait for all work on the device."""
        streams.synchronize()

    def reset(self) -> None:
        """Reset the context: here nothing is left to free."""

    def __enter__(self) -> Self:
        self._before.append(torch.cuda.current_device())
        torch.cuda.set_device(self.id)
        return self

    def __exit__(self, *exception: object) -> None:
        torch.cuda.set_device(self._before.pop())

    def __repr__(self) -> str:
        return f"<Managed Device {self.id}>"


class Gpus:
    """``cuda.gpus``."""

    def __getitem__(self, index: int) -> Context:
        if not 0 <= index < len(self):
            raise IndexError("list index out of range")
        return Context(index)

    def __len__(self) -> int:
        return torch.cuda.device_count()

    def __iter__(self) -> Iterator[Context]:
        return (Context(index) for index in range(len(self)))

    @property
    def current(self) -> Context:
        """The current device's."""
        return current_context()

    def __repr__(self) -> str:
        return f"<Managed Devices {', '.join(map(str, range(len(self))))}>"


def current_context(devnum: int | None = None) -> Context:
    """The context of a device, or of the current one."""
    return Context(torch.cuda.current_device() if devnum is None else devnum)


def get_current_device() -> CudaDevice:
    """The current device."""
    return CudaDevice(torch.cuda.current_device())


def select_device(device_id: int) -> Context:
    """Make a device current, for torch as well."""
    torch.cuda.set_device(device_id)
    return Context(device_id)


def detect() -> bool:
    """Print the devices."""
    gpus = Gpus()
    print(f"Found {len(gpus)} CUDA devices")
    for gpu in gpus:
        print(f"id {gpu.id}    {gpu.name!s:>20} {'[SUPPORTED]':>40}")
        print(f"{'Compute Capability':>40}: {gpu.compute_capability[0]}.{gpu.compute_capability[1]}")
        print(f"{'UUID':>40}: {gpu.device.uuid}")
    print(f"Summary:\n\t{len(gpus)}/{len(gpus)} devices are supported")
    return True


@contextmanager
def _nothing(*_: object, **__: object) -> Iterator[None]:
    yield


def event_elapsed_time(evtstart: streams.Event, evtend: streams.Event) -> float:
    """Milliseconds between two events."""
    return evtstart.elapsed_time(evtend)


def _is_available() -> bool:
    return torch.cuda.is_available()


def _stream() -> streams.Stream:
    return streams.Stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


def _default_stream() -> streams.Stream:
    return streams.Stream()


HOST: dict[str, Any] = {
    "is_available": _is_available,
    "is_supported_version": lambda: True,
    "cuda_error": lambda: None,
    "gpus": Gpus(),
    "list_devices": Gpus,
    "current_context": current_context,
    "get_current_device": get_current_device,
    "select_device": select_device,
    "close": lambda: None,
    "detect": detect,
    "synchronize": streams.synchronize,
    "stream": _stream,
    "default_stream": _default_stream,
    "legacy_default_stream": _default_stream,
    "per_thread_default_stream": _default_stream,
    "external_stream": streams.external_stream,
    "event": streams.Event,
    "event_elapsed_time": event_elapsed_time,
    "to_device": device_arrays.to_device,
    "device_array": device_arrays.device_array,
    "device_array_like": device_arrays.device_array_like,
    "as_cuda_array": device_arrays.as_cuda_array,
    "is_cuda_array": device_arrays.is_cuda_array,
    "pinned_array": device_arrays.pinned_array,
    "pinned_array_like": device_arrays.pinned_array_like,
    "mapped_array": device_arrays.mapped_array,
    "mapped_array_like": device_arrays.mapped_array_like,
    "managed_array": device_arrays.mapped_array,
    "profile_start": lambda: None,
    "profile_stop": lambda: None,
    "profiling": _nothing,
    "pinned": _nothing,
    "defer_cleanup": _nothing,
}
"""By their names in `numba.cuda`."""
