"""torch.cuda.memory._record_memory_history, and its snapshots for PyTorch's memory visualiser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds
from fakegpu_lab.hardware.allocator.caching_allocator import merge_snapshots
from fakegpu_lab.user_code.frames import OURS, kind, walk

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
    "_cuda_record_memory_history": record_memory_history,
    "_cuda_record_memory_history_legacy": record_memory_history_legacy,
    "_cuda_isHistoryEnabled": lambda: any(d.allocator.history is not None for d in current.devices()),
    "_cuda_memorySnapshot": memory_snapshot,
    "_cuda_allocationTraceback": allocation_traceback,
    "_cuda_setMemoryMetadata": set_memory_metadata,
    "_cuda_getMemoryMetadata": lambda: _metadata,
}


CHANGES = [*in_cuda_builds(FUNCTIONS), begun(lambda: set_memory_metadata(""), "the note was another machine's")]
