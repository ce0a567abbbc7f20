"""torch.cuda.memory: statistics, limits, settings, raw allocations, observers of out-of-memory errors, and history."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.cuda._utils import _get_device_index

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds, wrapped
from fakegpu_lab.driver.cost import workspace
from fakegpu_lab.hardware.allocator.caching_allocator import merge_snapshots
from fakegpu_lab.hardware.allocator.settings import AllocatorSettings
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.user_code.frames import OURS, kind, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator
    from fakegpu_lab.hardware.transfers.pinned_memory import PinnedMemory


def allocator(index: int) -> CachingAllocator:
    """A device's allocator, for the functions that do not initialise CUDA (assertValidDevice).

    C++ prints the index, a signed byte, as a character, so the sentence ends at the NUL of device 0.
    """
    if not current.ready or not 0 <= index < len(current.devices()):
        raise RuntimeError(f"Invalid device argument {chr(index % 256)}: did you call init?".split("\0", 1)[0])
    return current.devices()[index].allocator


def memory_stats(index: int) -> dict[str, Any]:
    """Every counter of a device's allocator, in nested dicts."""
    stats = allocator(index).stats()
    if cuda_messages.TORCH_VERSION < (2, 13):  # whose `torch.cuda.memory_stats` expects strings as keys
        del stats["reserved_bytes_by_private_pools"]
    return stats


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold."""
    return _allocator_of(device).allocated_bytes if current.ready else 0


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors held."""
    return _allocator_of(device).max_allocated_bytes if current.ready else 0


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds."""
    return _allocator_of(device).reserved_bytes if current.ready else 0


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes that the allocator held."""
    return _allocator_of(device).max_reserved_bytes if current.ready else 0


def _allocator_of(device: Any) -> CachingAllocator:
    return allocator(device if device.__class__ is int else _get_device_index(device, optional=True))


def empty_cache() -> None:
    """Release unused memory, on every device."""
    for device in current.devices():
        device_asserts.check(device)
        device.allocator.empty_cache()


def set_memory_fraction(fraction: float, index: int) -> None:
    """Limit the allocator to a part of the card."""
    allocator(index).set_memory_fraction(fraction)


def get_memory_fraction(index: int) -> float:
    """The part of the card that the allocator may take."""
    return allocator(index).memory_fraction


def _pinned() -> PinnedMemory:
    """The pinned memory of this process."""
    assert current.machine is not None, "without a machine, nothing is patched"
    return current.machine.pinned_memory


def set_allocator_settings(text: str) -> None:
    """Change ``PYTORCH_CUDA_ALLOC_CONF`` while running; raises ValueError with torch's sentence."""
    settings = AllocatorSettings.parse(text)
    for device in current.devices():
        device.allocator.configure(settings)


def get_allocator_settings() -> str:
    """The current settings, as text."""
    return _settings().text


def get_allocator_backend() -> str:
    """``native``, or what the settings say; the simulated memory behaves as native in any case."""
    return _settings().backend


def _settings() -> AllocatorSettings:
    return current.devices()[0].allocator.settings


def clear_cublas_workspaces() -> None:
    """Free the memory that cuBLAS took from the allocator."""
    for device in current.devices():
        device.workspaces.clear()


def set_workspace_size(nbytes: int | None) -> None:
    """Choose the size of cuBLAS's workspaces from now on, or (None) leave it to the card and the environment."""
    workspace.chosen = nbytes


def workspace_size() -> int:
    """The size of a new workspace of cuBLAS's on the current device."""
    return workspace.workspace_bytes(current.device())


def _enable_caching(value: bool) -> None:
    """Turn caching on or off for all devices (``torch.cuda.caching_allocator_enable``)."""
    for device in current.cards():
        device.allocator.enable_caching(value)


def _begin() -> None:
    workspace.chosen = None
    cuda_messages.oom_observers.clear()


def _as(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda original: functools.wraps(original)(function)


_TORCH = Path(torch.__file__).parent
_CALLED_BY_CPP = (str(_TORCH / "_ops.py"), str(_TORCH / "library.py"), str(_TORCH / "_library"))
"""Torch's files whose frames lie between a program and its memory here, but not on a real card."""

_metadata = ""


def frames() -> list[dict[str, Any]]:
    """The program's stack, innermost frame first, without the simulation's own frames."""
    found = []
    for frame in walk(sys._getframe(1)):
        code = frame.f_code
        if kind(code.co_filename) != OURS and not code.co_filename.startswith(_CALLED_BY_CPP):
            found.append({"filename": code.co_filename, "line": frame.f_lineno, "name": code.co_name})
    return found


def record_memory_history(
    enabled: str | None,
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """Start, change or stop (None) recording, on every device. There are no C++ frames to record.

    The last two are new in torch 2.15; the host's pinned memory is not recorded.
    """
    for device in current.devices() if record_cuda else ():
        device.allocator.record_history(
            enabled,
            context,
            stacks,
            max_entries,
            clear_history=clear_history,
            skip_actions=skip_actions or (),
            frames=frames,
        )


def record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    record_context_cpp: bool = False,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: list[str] | None = None,
    record_pinned_host_memory: bool = False,
    record_cuda: bool = True,
) -> None:
    """The boolean form (`_record_memory_history` in torch/csrc/cuda/memory_snapshot.cpp)."""
    context = ("alloc" if trace_alloc_record_context else "state") if record_context else None
    record_memory_history(
        "all" if enabled else None,
        context,
        "all" if record_context_cpp else "python",
        trace_alloc_max_entries,
        clear_history,
        compile_context,
        global_record_annotations,
        skip_actions,
        record_pinned_host_memory,
        record_cuda,
    )


def memory_snapshot(pool: tuple[int, ...] | None = None) -> dict[str, Any]:
    """The state of every allocator and its history.

    Parameters
    ----------
    pool
        ``(pool id, pool id[, include traces])``; ``(0, 0)`` and None are all pools.
    """
    include_traces = bool(pool[2]) if pool is not None and len(pool) > 2 else True
    snapshot = merge_snapshots(
        [device.allocator.snapshot(include_traces=include_traces) for device in current.devices()]
    )
    if pool is not None and pool[:2] != (0, 0):
        snapshot["segments"] = [s for s in snapshot["segments"] if s["segment_pool_id"] == pool[:2]]
    return snapshot


def allocation_traceback(address: int) -> list[dict[str, Any]] | None:
    """Where live memory was taken, if that was recorded."""
    for device in current.devices():
        for segment in device.allocator.describe()["segments"]:
            for block in segment["blocks"]:
                if block["address"] == address and block["state"] == "active_allocated":
                    return block["frames"] or None
    return None


def set_memory_metadata(text: str) -> None:
    """Remember a note for later allocations. Snapshots do not show it."""
    global _metadata
    _metadata = text


FUNCTIONS = {
    "_cuda_memoryStats": memory_stats,
    "_cuda_resetPeakMemoryStats": lambda index: allocator(index).reset_peak(),
    "_cuda_resetAccumulatedMemoryStats": lambda index: allocator(index).reset_accumulated(),
    "_cuda_emptyCache": empty_cache,
    "_cuda_setMemoryFraction": set_memory_fraction,
    "_cuda_getMemoryFraction": get_memory_fraction,
    "_cuda_cudaCachingAllocator_enable": _enable_caching,
    "_cuda_cudaCachingAllocator_is_enabled": lambda: allocator(0).caching,
    "_cuda_hostMemoryStats": lambda: _pinned().stats(),
    "_cuda_resetPeakHostMemoryStats": lambda: _pinned().reset_peak(),
    "_cuda_resetAccumulatedHostMemoryStats": lambda: _pinned().reset_accumulated(),
    "_host_emptyCache": lambda: _pinned().empty_cache(here.host.now),
    "_cuda_getAllocatorBackend": get_allocator_backend,
    "_accelerator_setAllocatorSettings": set_allocator_settings,
    "_accelerator_getAllocatorSettings": get_allocator_settings,
    "_cuda_clearCublasWorkspaces": clear_cublas_workspaces,
    "_cuda_getCublasWorkspaceSize": workspace_size,
    "_cuda_setCublasWorkspaceSize": set_workspace_size,
    "_cuda_resetCublasWorkspaceSize": lambda: set_workspace_size(None),
    "_cuda_getCublasLtWorkspaceSize": workspace_size,
    "_cuda_setCublasLtWorkspaceSize": set_workspace_size,
    "_cuda_resetCublasLtWorkspaceSize": lambda: set_workspace_size(None),
    "_cuda_attach_out_of_memory_observer": cuda_messages.oom_observers.append,
    "_cuda_record_memory_history": record_memory_history,
    "_cuda_record_memory_history_legacy": record_memory_history_legacy,
    "_cuda_isHistoryEnabled": lambda: any(d.allocator.history is not None for d in current.devices()),
    "_cuda_memorySnapshot": memory_snapshot,
    "_cuda_allocationTraceback": allocation_traceback,
    "_cuda_setMemoryMetadata": set_memory_metadata,
    "_cuda_getMemoryMetadata": lambda: _metadata,
}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(_begin, "nothing of another machine's"),
    *(
        wrapped(
            f"{module}.{function.__name__}",
            _as(function),
            "torch's own flatten and sort all hundred statistics to return one, and loops call them at every step",
        )
        for function in (memory_allocated, max_memory_allocated, memory_reserved, max_memory_reserved)
        for module in ("torch.cuda", "torch.cuda.memory")
    ),
    begun(lambda: set_memory_metadata(""), "the note was another machine's"),
]
