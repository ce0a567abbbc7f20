"""torch.accelerator: functions without CUDA in their names, with the results of CUDA's."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import in_cuda_builds, wrapped
from fakegpu_lab.driver.cost import launching
from fakegpu_lab.driver.torch_cuda import devices, memory, nvidia_libraries, streams

_DTYPES = frozenset(
    value for value in vars(torch).values() if isinstance(value, torch.dtype) and "bits" not in str(value)
)


def get_stream(index: int) -> torch.Stream:
    """The current stream of this thread on a device: a `torch.cuda.Stream`, which is a `torch.Stream`."""
    return torch.cuda.current_stream(index)


def set_stream(stream: torch.Stream) -> None:
    """Make a stream and its device current."""
    streams.set_stream(stream.stream_id, stream.device_index, stream.device_type)


def synchronize(index: int) -> None:
    """Wait for a device, unless CUDA is not initialised."""
    if current.ready:
        device = current.device(index)
        launching.wait(device, "torch.accelerator.synchronize")
        device_asserts.check(device)


def get_memory_info(index: int) -> tuple[int, int]:
    """Free and total bytes."""
    return nvidia_libraries.mem_get_info(index)


def get_device_capability(index: int) -> dict[str, Any]:
    """The dtypes that a tensor on the device can have."""
    current.device(index)
    return {"supported_dtypes": set(_DTYPES)}


def get_default_generator(index: int) -> torch.Generator:
    """A device's generator; there are none before CUDA is initialised."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return torch.cuda.default_generators[index]


FUNCTIONS = {
    "_accelerator_getAccelerator": lambda: torch.device("cuda"),
    "_get_accelerator": lambda check=False: torch.device("cuda"),
    "_accelerator_getDeviceIndex": devices.get_device,
    "_accelerator_setDeviceIndex": devices.set_device,
    "_accelerator_exchangeDevice": devices.exchange_device,
    "_accelerator_maybeExchangeDevice": devices.exchange_device,
    "_accelerator_hooks_device_count": devices.get_device_count,
    "_accelerator_hooks_get_current_device": devices.get_device,
    "_accelerator_hooks_set_current_device": devices.set_device,
    "_accelerator_hooks_exchange_device": devices.exchange_device,
    "_accelerator_hooks_maybe_exchange_device": devices.exchange_device,
    "_accelerator_getDeviceCapability": get_device_capability,
    "_accelerator_getStream": get_stream,
    "_accelerator_setStream": set_stream,
    "_accelerator_synchronizeDevice": synchronize,
    "_accelerator_isAllocatorInitialized": lambda: current.ready,
    "_accelerator_emptyCache": memory.empty_cache,
    "_accelerator_emptyHostCache": lambda: None,
    "_accelerator_getDeviceStats": memory.memory_stats,
    "_accelerator_resetPeakStats": lambda index: memory.allocator(index).reset_peak(),
    "_accelerator_resetAccumulatedStats": lambda index: memory.allocator(index).reset_accumulated(),
    "_accelerator_getMemoryInfo": get_memory_info,
    "_accelerator_getDefaultGenerator": get_default_generator,  # since torch 2.15
}


def _new_cache(function: Any) -> Any:
    return functools.cache(function.__wrapped__)


_CACHED = "what it has cached is another machine's"
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    wrapped("torch.get_device_module", _new_cache, _CACHED),
    wrapped("torch.accelerator.get_device_capability", _new_cache, _CACHED, since="2.11"),
]
