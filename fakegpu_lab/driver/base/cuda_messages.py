"""CUDA's error messages, word for word, as the installed torch version prints them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.base.privateuse1 import NAME
from fakegpu_lab.hardware.catalogue.sizes import format_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.allocator.caching_allocator import DeviceOutOfMemory

TORCH_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def no_gpus() -> RuntimeError:
    """The error of `torch._C._cuda_init` when the driver finds no device."""
    return RuntimeError("No CUDA GPUs are available")


def invalid_device_ordinal() -> RuntimeError:
    """The error of cudaErrorInvalidDevice (c10/cuda/CUDAException.cpp and CUDAMiscFunctions.cpp)."""
    return torch.AcceleratorError(
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n" + _ADVICE
    )


_ADVICE = (
    "For more detailed error information, run with CUDA_LOG_FILE=stderr\n\n"
    if TORCH_VERSION >= (2, 13)
    else "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"
    " incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)


def invalid_resource_handle() -> RuntimeError:
    """The error of cudaErrorInvalidResourceHandle: an event or stream of another device."""
    return torch.AcceleratorError(_named("cudaErrorInvalidResourceHandle", "invalid resource handle") + _ASYNC_ADVICE)


def not_ready() -> RuntimeError:
    """The error of cudaErrorNotReady: the time between two events was read before both had happened."""
    return torch.AcceleratorError(_named("cudaErrorNotReady", "device not ready") + _ASYNC_ADVICE)


def capture_error(name: str, sentence: str) -> RuntimeError:
    """One of the errors of stream capture, ``cudaErrorStreamCapture…``."""
    return torch.AcceleratorError(_named(name, sentence) + _ASYNC_ADVICE)


def _named(name: str, sentence: str) -> str:
    """An error of CUDA's: its sentence, and the page that explains its name."""
    return (
        f"CUDA error: {sentence}\nSearch for `{name}' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n"
    )


_ASYNC_ADVICE = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be"
    " incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
) + ("\n" if TORCH_VERSION >= (2, 13) else "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n")


def device_assert(blocking: bool) -> RuntimeError:
    """The error of cudaErrorAssert; without the advice if a blocking launch raised it (CUDAMiscFunctions.cpp)."""
    return _fatal(710, _named("cudaErrorAssert", "device-side assert triggered"), blocking)


def illegal_access(blocking: bool) -> RuntimeError:
    """The error of cudaErrorIllegalAddress: a kernel has accessed memory that is not mapped."""
    return _fatal(700, _named("cudaErrorIllegalAddress", "an illegal memory access was encountered"), blocking)


def _fatal(code: int, text: str, blocking: bool) -> RuntimeError:
    advice = _ASYNC_ADVICE.partition("CUDA_LAUNCH_BLOCKING=1\n")[2] if blocking else _ASYNC_ADVICE
    error = torch.AcceleratorError(text + advice)
    error.error_code = code  # type: ignore[attr-defined]
    return error


oom_observers: list[Callable[[int, int, int, int], object]] = []
"""Called with (device, bytes requested, its limit, its free bytes) before an out-of-memory error is raised."""


def out_of_memory(figures: DeviceOutOfMemory) -> torch.OutOfMemoryError:
    """The message of c10/cuda/CUDACachingAllocator.cpp, which ends with this torch version's advice."""
    figures.__traceback__ = None  # it becomes the context of the error, and must not keep the allocator's frames alive
    for observer in oom_observers:
        limit = figures.total if figures.allowed is None else figures.allowed
        observer(figures.device, figures.segment, limit, figures.free)
    allowed = f"{format_size(figures.allowed)} allowed; " if figures.allowed is not None else ""
    if figures.requested >= _EXABYTE:
        return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate more than 1EB memory.")
    private = (
        f"with {format_size(figures.private_pools)} allocated in private pools (e.g., CUDA Graphs), "
        if figures.private_pools
        else ""
    )
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {format_size(figures.segment)}. "
        f"GPU {figures.device} has a total capacity of {format_size(figures.total)} "
        f"of which {format_size(figures.free)} is free. "
        f"Including non-PyTorch memory, this process has {format_size(figures.in_use)} memory in use. {allowed}"
        f"Of the allocated memory {format_size(figures.allocated)} is allocated by PyTorch, {private}and "
        f"{format_size(figures.reserved_unallocated)} is reserved by PyTorch but unallocated. "
        f"If reserved but unallocated memory is large try setting {_CONF_VARIABLE}=expandable_segments:True "
        f"to avoid fragmentation.  See documentation for Memory Management  ({_MEMORY_URL})"
    )


_EXABYTE = 1 << 60
"""c10/cuda/CUDACachingAllocator.cpp, `allocate`."""
_CONF_VARIABLE = "PYTORCH_ALLOC_CONF" if (2, 10) <= TORCH_VERSION < (2, 13) else "PYTORCH_CUDA_ALLOC_CONF"
_MEMORY_URL = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
    if TORCH_VERSION >= (2, 13)
    else "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
)


def with_cuda_name(error: Exception) -> Exception:
    """A C++ error, with ``cuda`` in place of the name of our C++ device."""
    text = str(error)
    if NAME not in text:
        return error
    text = re.sub(rf"{NAME}(\w+)Type\b", r"torch.cuda.\1Tensor", text)  # a type, as toString() writes it
    return type(error)(text.replace(NAME, "cuda"))


def no_host_memory() -> RuntimeError:
    """An error that no real GPU raises: the computer is out of memory, the simulated GPU is not."""
    return RuntimeError(
        "The simulated GPU has room for this tensor, but this computer does not: the values are kept in its own "
        'memory. Enable the machine with compute="meta", which keeps shapes and memory but no values, or with less '
        "memory, so that CUDA's own out-of-memory error comes first."
    )
