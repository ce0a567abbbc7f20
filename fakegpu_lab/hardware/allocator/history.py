"""The recorded history of an allocator (torch.cuda.memory._record_memory_history) and its snapshot.

Shapes: torch/cuda/memory.py `_snapshot` and torch/csrc/cuda/memory_snapshot.cpp; options and their
complaints: `_record_memory_history` in the same C++ file.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.allocator import blocks as b

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.allocator.blocks import PoolId, Segment

Frames = list[dict[str, Any]]

# RecordContext in c10/core/CachingDeviceAllocator.h: for which events the frames are kept.
NEVER, STATE, ALLOC, ALL = range(4)
_CONTEXTS = {None: NEVER, "state": STATE, "alloc": ALLOC, "all": ALL}
ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)


class History:
    """A ring buffer of trace entries, with the stack frames of the calls that caused them."""

    def __init__(self) -> None:
        self._entries: deque[dict[str, Any]] = deque(maxlen=1)
        self._level = NEVER
        self._skip: frozenset[str] = frozenset()
        self._frames: Callable[[], Frames] | None = None
        # Without a clock the entries are numbered: nothing here reads the wall clock.
        self._numbers = itertools.count()
        self._now_us: Callable[[], int] = self._numbers.__next__

    def configure(
        self,
        enabled: str,
        context: str | None,
        stacks: str,
        max_entries: int,
        clear_history: bool,
        skip_actions: Sequence[str],
        frames: Callable[[], Frames] | None,
        now_us: Callable[[], int] | None,
    ) -> None:
        """Check and apply the options of _record_memory_history."""
        if enabled not in ("state", "all"):
            raise ValueError("expected state to be 'state', 'all', or None")
        if context not in _CONTEXTS:
            raise ValueError("expected context to be 'state', 'alloc', 'all', or None")
        if stacks not in ("python", "all"):
            raise ValueError("expected stacks to be 'python', or 'all'")
        for action in skip_actions:
            if action not in ACTIONS:
                raise ValueError(f"Unknown TraceEntry action: {action}")
        self._level = _CONTEXTS[context]
        self._skip = frozenset(skip_actions)
        self._frames = frames
        self._now_us = now_us or self._numbers.__next__
        # "state" keeps the frames of live blocks, and of the history only the last entry.
        entries = () if clear_history else self._entries
        self._entries = deque(entries, maxlen=max(1, max_entries) if enabled == "all" else 1)

    def gather(self, level: int) -> Frames | None:
        """The caller's frames, if they are recorded at this level (maybeGatherContext)."""
        if self._level < level or self._frames is None:
            return None
        return self._frames()

    def record(self, action: str, address: int, size: int, stream: int, pool: PoolId, frames: Frames | None) -> None:
        """record_trace. For "oom" the address is the device's free memory."""
        if action in self._skip:
            return
        self._entries.append(
            {
                "action": action,
                "device_free" if action == "oom" else "addr": address,
                "size": size,
                "stream": stream,
                "time_us": self._now_us(),
                "compile_context": "N/A",
                "user_metadata": "",
                "pool_id": pool,
                # Always present: the memory visualizer expects it.
                "frames": frames if frames is not None and self._level >= ALLOC else [],
            }
        )

    def entries(self) -> list[dict[str, Any]]:
        """The entries, oldest first."""
        return [dict(entry) for entry in self._entries]


def describe_segments(device: int, segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """The "segments" of a snapshot, sorted by address.

    An expandable segment is one entry for each contiguous mapped range (DeviceCachingAllocator::snapshot).
    """
    found: list[dict[str, Any]] = []
    for segment in segments:
        for is_mapped, group in itertools.groupby(segment.blocks(), lambda block: block.state != b.UNMAPPED):
            if is_mapped:
                found.append(_describe_range(device, segment, list(group)))
    return sorted(found, key=lambda entry: int(entry["address"]))


def _describe_range(device: int, segment: Segment, blocks: Sequence[b.Block]) -> dict[str, Any]:
    pool = segment.free_list.pool
    described = [_describe_block(block) for block in blocks]
    active = [block for block in described if block["state"] != "inactive"]
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": sum(block.size for block in blocks),
        "allocated_size": sum(block["size"] for block in active if block["state"] == "active_allocated"),
        "active_size": sum(block["size"] for block in active),
        "requested_size": sum(block["requested_size"] for block in active),
        "stream": segment.free_list.stream,
        "segment_type": "small" if pool.is_small else "large",
        "segment_pool_id": pool.id,
        "is_expandable": segment.expandable is not None,
        "frames": segment.frames or [],
        "blocks": described,
    }


def _describe_block(block: b.Block) -> dict[str, Any]:
    if block.state == b.FREE:
        state = "inactive"
    else:
        state = "active_pending_free" if block.state == b.PENDING else "active_allocated"
    return {
        "address": block.address,
        "size": block.size,
        # A free block keeps its last request, but the snapshot shows none.
        "requested_size": 0 if state == "inactive" else block.requested,
        "state": state,
        "frames": [] if state == "inactive" else getattr(block, "frames", None) or [],
    }


def merge_snapshots(snapshots: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the snapshots of a machine's devices, given in the order of their indices, into one."""
    traces: list[list[dict[str, Any]]] = [[] for _ in snapshots]
    for snapshot in snapshots:
        for index, trace in enumerate(snapshot["device_traces"]):
            traces[index].extend(trace)
    return {
        "segments": [segment for snapshot in snapshots for segment in snapshot["segments"]],
        "device_traces": traces,
        "allocator_settings": snapshots[0]["allocator_settings"] if snapshots else {},
        "external_annotations": [],
    }
