"""CUDA's own sentences, word for word, as the running torch version says them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.hardware.sizes import format_size

if TYPE_CHECKING:
    from fakegpu_lab.hardware.allocator import DeviceOutOfMemory

TORCH_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def no_gpus() -> RuntimeError:
    """What `torch._C._cuda_init` raises where the driver finds no device."""
    return RuntimeError("No CUDA GPUs are available")


def invalid_device_ordinal() -> RuntimeError:
    """cudaErrorInvalidDevice (c10/cuda/CUDAException.cpp and CUDAMiscFunctions.cpp)."""
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


def out_of_memory(figures: DeviceOutOfMemory) -> torch.OutOfMemoryError:
    """The one line of c10/cuda/CUDACachingAllocator.cpp, with this torch version's advice at its end."""
    allowed = f"{format_size(figures.allowed)} allowed; " if figures.allowed is not None else ""
    private = (
        f"with {format_size(figures.private_pool_bytes)} allocated in private pools (e.g., CUDA Graphs), "
        if figures.private_pool_bytes
        else ""
    )
    return torch.OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {format_size(figures.requested)}. "
        f"GPU {figures.device} has a total capacity of {format_size(figures.total)} "
        f"of which {format_size(figures.free)} is free. "
        f"Including non-PyTorch memory, this process has {format_size(figures.in_use)} memory in use. {allowed}"
        f"Of the allocated memory {format_size(figures.allocated)} is allocated by PyTorch, {private}and "
        f"{format_size(figures.reserved_unallocated)} is reserved by PyTorch but unallocated. "
        f"If reserved but unallocated memory is large try setting {_CONF_VARIABLE}=expandable_segments:True "
        f"to avoid fragmentation.  See documentation for Memory Management  ({_MEMORY_URL})"
    )


_CONF_VARIABLE = "PYTORCH_ALLOC_CONF" if (2, 10) <= TORCH_VERSION < (2, 13) else "PYTORCH_CUDA_ALLOC_CONF"
_MEMORY_URL = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
    if TORCH_VERSION >= (2, 13)
    else "https://pytorch.org/docs/stable/notes/cuda.html#environment-variables"
)
