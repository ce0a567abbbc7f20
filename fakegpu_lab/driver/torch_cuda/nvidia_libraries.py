"""NVIDIA's libraries as Python sees them: ``torch.cuda.cudart()``, NVTX, and NVML for ``torch.cuda.utilization``."""

from __future__ import annotations

import ctypes
import enum
import itertools
import types
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, begun, computed, imported
from fakegpu_lab.driver.copies.pinned_memory import registered

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.changes import Change


class cudaError(enum.IntEnum):  # noqa: N801 (torch's name)
    """cudaError_t, with the values that these functions return."""

    success = 0
    errorInvalidValue = 1  # noqa: N815
    errorHostMemoryAlreadyRegistered = 712  # noqa: N815
    errorHostMemoryNotRegistered = 713  # noqa: N815

    @classmethod
    def _missing_(cls, value: object) -> cudaError:
        other: cudaError = int.__new__(cls, value)  # type: ignore[call-overload]
        other._name_, other._value_ = "unknown", int(other)
        return other


_STRINGS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    34: "CUDA driver is a stub library",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    400: "invalid resource handle",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    710: "device-side assert triggered",
    712: "part or all of the requested memory range is already mapped",
    713: "pointer does not correspond to a registered memory region",
}

_stream_handles = itertools.count(0x5580_0000_0000, 0x100)


def get_error_string(code: int) -> str:
    """The text of an error code (cudaGetErrorString)."""
    return _STRINGS.get(int(code), "unrecognized error code")


def mem_get_info(index: int) -> tuple[int, int]:
    """Free and total bytes of a device (cudaMemGetInfo)."""
    device = current.device(index)
    device_asserts.check(device)
    return device.allocator.memory_info()


def host_register(pointer: int, nbytes: int, flags: int) -> cudaError:
    """Page-lock host memory: copies from it may overlap with kernels."""
    if pointer in registered:
        return cudaError.errorHostMemoryAlreadyRegistered
    registered[pointer] = nbytes
    return cudaError.success


def host_unregister(pointer: int) -> cudaError:
    """Undo `host_register`."""
    if registered.pop(pointer, None) is None:
        return cudaError.errorHostMemoryNotRegistered
    return cudaError.success


def stream_create(pointer: int) -> cudaError:
    """Write the handle of a new stream to an address, for `torch.cuda.ExternalStream`."""
    ctypes.c_uint64.from_address(pointer).value = next(_stream_handles)
    return cudaError.success


def _ok(*args: object) -> cudaError:
    return cudaError.success


def _module() -> types.ModuleType:
    """A module like ``torch._C._cudart`` (torch/csrc/cuda/shared/cudart.cpp)."""
    module = types.ModuleType("torch._C._cudart", "libcudart bindings")
    module.__dict__.update(
        cudaError=cudaError,
        cudaGetErrorString=get_error_string,
        cudaMemGetInfo=mem_get_info,
        cudaHostRegister=host_register,
        cudaHostUnregister=host_unregister,
        cudaProfilerStart=_ok,
        cudaProfilerStop=_ok,
        cudaStreamCreate=stream_create,
        cudaStreamDestroy=_ok,
    )
    return module


class Nvtx:
    """``torch._C._nvtx``: named ranges for a profiler's timeline. The depth is kept, the names are not recorded yet."""

    def __init__(self) -> None:
        self._depth = 0
        self._handles = 0

    def rangePushA(self, message: str) -> int:
        """Open a nested range; returns its depth, from 0."""
        self._depth += 1
        return self._depth - 1

    def rangePop(self) -> int:
        """Close the innermost range; returns its depth, or -2 if there is none (NVTX_NO_PUSH_POP_TRACKING)."""
        if not self._depth:
            return -2
        self._depth -= 1
        return self._depth

    def rangeStartA(self, message: str) -> int:
        """Open a range that may overlap others; returns its handle."""
        self._handles += 1
        return self._handles

    def rangeEnd(self, handle: int) -> None:
        """Close that range."""

    def markA(self, message: str) -> None:
        """Mark a moment."""

    def deviceRangeStart(self, message: str, stream: int) -> object:
        """Open a range on a stream."""
        return object()

    def deviceRangeEnd(self, handle: object, stream: int) -> None:
        """Close a range on a stream."""


def _bindings() -> list[Change]:
    module, nvtx = _module(), Nvtx()
    return [
        added("torch._C._cudart", module, _WHY),
        added("torch.cuda._cudart", module, _WHY),
        added("torch._C._nvtx", nvtx, _WHY),
        added("torch.cuda.nvtx._nvtx", nvtx, _WHY),
    ]


_WHY = "CPU builds lack it"


def _attach(module: Any) -> list[Change]:
    from fakegpu_lab.nvml import library

    return [begun(lambda: library.attach(module), "pynvml answers from the simulated library")]


CHANGES = [
    computed(_bindings, "CUDA's runtime and NVTX"),
    imported("pynvml", _attach, "torch.cuda.utilization and related functions ask it"),
]
