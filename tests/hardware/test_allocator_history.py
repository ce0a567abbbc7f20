"""The recorded history and the snapshot, which PyTorch's own tools must be able to read."""

from __future__ import annotations

import json
import pickle
from base64 import b64decode
from typing import Any

import pytest

from fakegpu_lab.hardware.allocator.caching_allocator import CachingAllocator, DeviceOutOfMemory, merge_snapshots

MIB = 2**20
HERE = [{"filename": "lesson.py", "line": 3, "name": "forward"}]


def recorded(**kwargs: Any) -> CachingAllocator:
    gpu = CachingAllocator(1, 100 * MIB)
    gpu.record_history(frames=lambda: list(HERE), **kwargs)
    return gpu


def actions(gpu: CachingAllocator) -> list[tuple[str, int]]:
    return [(entry["action"], entry["size"]) for entry in gpu.snapshot()["device_traces"][1]]


def program(gpu: CachingAllocator) -> None:
    block = gpu.malloc(1000)
    gpu.free(block)
    gpu.empty_cache()
    keep = gpu.malloc(30 * MIB)
    gpu.record_stream(keep, 7)
    with pytest.raises(DeviceOutOfMemory):
        gpu.malloc(90 * MIB)
    gpu.free(keep)
    gpu.malloc(2 * MIB)


EVENTS = [
    ("segment_alloc", 2 * MIB),
    ("alloc", 1000),
    ("free_requested", 1000),
    ("free_completed", 1000),
    ("segment_free", 2 * MIB),
    ("segment_alloc", 30 * MIB),
    ("alloc", 30 * MIB),
    ("oom", 90 * MIB),
    ("free_requested", 30 * MIB),
    ("free_completed", 30 * MIB),
    ("alloc", 2 * MIB),
]


def test_every_event() -> None:
    gpu = recorded()
    program(gpu)
    snapshot = gpu.snapshot()
    entries = snapshot["device_traces"][1]
    assert [(entry["action"], entry["size"]) for entry in entries] == EVENTS
    assert snapshot["device_traces"][0] == []
    assert all(entry["frames"] == HERE for entry in entries)
    assert [entry["time_us"] for entry in entries] == sorted(entry["time_us"] for entry in entries)
    oom = entries[7]
    assert (oom["device_free"], "addr" in oom, oom["pool_id"]) == (70 * MIB, False, (0, 0))
    assert actions(gpu)[-1] == ("snapshot", 2 * MIB)


def test_expandable_segments_are_mapped() -> None:
    from fakegpu_lab.hardware.allocator.caching_allocator import AllocatorSettings

    gpu = CachingAllocator(1, 100 * MIB, settings=AllocatorSettings.parse("expandable_segments:True"))
    gpu.record_history()
    gpu.free(gpu.malloc(2 * MIB))
    gpu.empty_cache()
    assert [name for name, _ in actions(gpu)] == [
        "segment_map",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_unmap",
    ]


def test_ring_and_skipped_actions() -> None:
    gpu = recorded(max_entries=3, skip_actions=["free_requested"])
    program(gpu)
    assert actions(gpu) == [("oom", 90 * MIB), ("free_completed", 30 * MIB), ("alloc", 2 * MIB)]


def test_contexts() -> None:
    gpu = recorded(context="state")
    block = gpu.malloc(512)
    snapshot = gpu.snapshot()
    assert all(entry["frames"] == [] for entry in snapshot["device_traces"][1])
    assert snapshot["segments"][0]["blocks"][0]["frames"] == HERE
    gpu.record_history(None)
    assert gpu.snapshot()["device_traces"] == [[], []]
    assert gpu.snapshot()["segments"][0]["blocks"][0]["frames"] == []
    gpu.free(block)
    for name, value in (("enabled", "yes"), ("context", "much"), ("stacks", "c++")):
        with pytest.raises(ValueError, match="expected"):
            gpu.record_history(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown TraceEntry action"):
        gpu.record_history(skip_actions=["sleep"])


def test_segments() -> None:
    gpu = recorded()
    clock_free = gpu.malloc(1000, stream=0)
    waiting = gpu.malloc(600)
    gpu.record_stream(waiting, 9)
    gpu.free(waiting)
    (segment,) = gpu.snapshot()["segments"]
    base = clock_free.address
    assert segment == {
        "device": 1,
        "address": base,
        "total_size": 2 * MIB,
        "allocated_size": 1024,
        "active_size": 2048,
        "requested_size": 1600,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": HERE,
        "blocks": [
            {"address": base, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": HERE},
            {
                "address": base + 1024,
                "size": 1024,
                "requested_size": 600,
                "state": "active_pending_free",
                "frames": HERE,
            },
            {
                "address": base + 2048,
                "size": 2 * MIB - 2048,
                "requested_size": 0,
                "state": "inactive",
                "frames": [],
            },
        ],
    }


def test_pytorch_reads_it() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    first, second = CachingAllocator(0, 100 * MIB), recorded()
    first.malloc(5)
    program(second)
    snapshot = merge_snapshots([first.snapshot(), second.snapshot()])
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
    for page in (
        viz.trace_plot(snapshot),
        viz.trace_plot(snapshot, plot_segments=True),
        viz.segment_plot(snapshot),
    ):
        local_files = next(line for line in page.splitlines() if line.startswith("const local_files"))
        (shown,) = json.loads(local_files.partition(" = ")[2])
        assert pickle.loads(b64decode(shown["base64"])) == snapshot
    assert "total_reserved: 32.0MiB" in viz.segsum(snapshot)
    assert "cudaMalloc" in viz.trace(snapshot)
    assert f"stream_0;active_allocated;lesson.py:3:forward {2 * MIB}" in viz.memory(snapshot, lambda lines: lines)
    assert "lesson.py:3:forward" in viz.segments(snapshot, lambda lines: lines)


def test_every_statistic_that_torch_reads() -> None:
    torch = pytest.importorskip("torch")
    stats: Any = CachingAllocator(0, 100 * MIB).stats()
    documented = torch.cuda.memory_stats.__doc__
    for newer in ("num_oom_rejections", "reserved_bytes_by_private_pools"):  # than PyTorch 2.10
        assert newer in documented or torch.__version__.startswith(("2.10.", "2.11.", "2.12."))
        assert newer in stats
    for key in (
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "max_split_size",
        "oversize_allocations",
        "oversize_segments",
        "requested_bytes",
        "inactive_split_bytes",
    ):
        assert key in documented
        assert key in stats
    # memory_summary is pure Python over these keys
    for key in (
        "allocated_bytes",
        "active_bytes",
        "reserved_bytes",
        "allocation",
        "active",
        "segment",
        "inactive_split",
    ):
        assert set(stats[key]) == {"all", "small_pool", "large_pool"}
        assert set(stats[key]["all"]) == {"current", "peak", "allocated", "freed"}
