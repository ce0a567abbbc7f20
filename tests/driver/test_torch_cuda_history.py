"""The recorded history of device memory, as PyTorch's memory visualiser reads it."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.cuda import _memory_viz

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from pathlib import Path

record = torch.cuda.memory._record_memory_history
snapshot = torch.cuda.memory._snapshot


def make_a_tensor() -> torch.Tensor:
    return torch.ones(1000, device="cuda")


def traces(device: int = 0) -> list[dict[str, Any]]:
    return snapshot()["device_traces"][device]


def test_what_happened_and_who_did_it(machine: Any) -> None:
    record()
    x = make_a_tensor()
    del x
    entries, others = snapshot()["device_traces"]
    assert others == []
    assert [entry["action"] for entry in entries] == ["segment_alloc", "alloc", "free_requested", "free_completed"]
    names = [frame["name"] for frame in entries[1]["frames"]]
    assert names[:2] == ["make_a_tensor", "test_what_happened_and_who_did_it"]
    assert entries[1]["frames"][0]["filename"] == __file__
    assert entries[1]["size"] == 4000
    assert all("fakegpu_lab/" not in f["filename"] for entry in entries for f in entry["frames"])


def test_only_the_hosts_memory(machine: Any) -> None:
    """As torch 2.15 calls C++: its last two arguments are the host's pinned memory, and the cards'."""
    arguments = ("all", "all", "all", 100, False, False, False, [], True)
    torch._C._cuda_record_memory_history(*arguments, False)
    make_a_tensor()
    assert not torch._C._cuda_isHistoryEnabled()
    torch._C._cuda_record_memory_history(*arguments, True)
    assert torch._C._cuda_isHistoryEnabled()


def test_in_the_state_only_living_blocks_have_frames(machine: Any) -> None:
    """RecordContext::STATE (c10/cuda/CUDACachingAllocator.cpp): none in the history, none of what has been freed."""
    other = torch.ones(1, device="cuda")  # the segment is not new, and remembers nothing
    record(context="state")
    x = make_a_tensor()
    assert "make_a_tensor" in str(snapshot()["segments"])
    del x
    assert "make_a_tensor" not in str(snapshot())
    record(context="alloc")
    x = make_a_tensor()
    del x
    assert "make_a_tensor" in str(snapshot()["device_traces"])
    assert "make_a_tensor" not in str(snapshot()["segments"])
    del other


def test_a_live_block_remembers_where_it_was_taken(machine: Any) -> None:
    record()
    x = make_a_tensor()
    blocks = [b for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
    assert [block["frames"][0]["name"] for block in blocks] == ["make_a_tensor"]
    if TORCH_VERSION < (2, 13):
        return  # which has no name for the rest
    frames = torch.cuda.memory._allocation_traceback(x.data_ptr())
    assert frames is not None
    assert frames[0]["name"] == "make_a_tensor"
    assert torch.cuda.memory._allocation_traceback(12345) is None


def test_a_module_s_frames_are_in_the_stack(machine: Any) -> None:
    layer = torch.nn.Linear(4, 4, device="cuda")
    record()
    layer(torch.ones(1, 4, device="cuda"))
    names = {frame["name"] for entry in traces() for frame in entry["frames"]}
    assert {"forward", "_call_impl"} <= names


def test_an_out_of_memory_error_is_in_the_history(machine: Any) -> None:
    record()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**40, dtype=torch.uint8, device="cuda")
    entry = traces()[-1]
    assert entry["action"] == "oom"
    assert entry["device_free"] == torch.cuda.mem_get_info()[0]


def test_stopping_and_the_forms_of_starting(machine: Any) -> None:
    enabled = torch._C._cuda_isHistoryEnabled
    assert not enabled()
    record("state", max_entries=5)
    assert enabled()
    record(None)
    assert not enabled()
    record(True, trace_alloc_max_entries=3, trace_alloc_record_context=True)
    for _ in range(5):
        make_a_tensor()
    assert len(traces()) == 3
    record(False)
    assert not enabled()


@pytest.mark.skipif(TORCH_VERSION < (2, 13), reason="the argument is newer")
def test_actions_can_be_left_out(machine: Any) -> None:
    record(skip_actions=["free_requested", "segment_alloc"])
    make_a_tensor()
    assert [entry["action"] for entry in traces()] == ["alloc", "free_completed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"enabled": "some"}, "expected state to be 'state', 'all', or None"),
        ({"context": "some"}, "expected context to be 'state', 'alloc', 'all', or None"),
        ({"stacks": "some"}, "expected stacks to be 'python', or 'all'"),
    ],
)
def test_options_that_torch_refuses(machine: Any, options: dict[str, str], said: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=said):
        record(**options)


def test_a_dumped_snapshot_opens_in_the_visualiser(machine: Any, tmp_path: Path) -> None:
    record()
    x = [make_a_tensor() for _ in range(3)]
    x.pop()
    file = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    data = pickle.loads(file.read_bytes())
    assert set(data) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert "a = cudaMalloc(" in _memory_viz.trace(data)
    assert "segments: 1" in _memory_viz.segsum(data)
    assert "make_a_tensor" in _memory_viz._block_extra(data["segments"][0]["blocks"][0])[0][0]["name"]
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "<html" in plot(data)


def test_a_snapshot_without_traces_is_light(machine: Any) -> None:
    record()
    x = make_a_tensor()
    light = torch._C._cuda_memorySnapshot((0, 0, False))
    assert light["device_traces"] == [[], []]
    assert len(light["segments"]) == 1
    assert torch.cuda.memory_snapshot((3, 4)) == []
    del x


def test_metadata_is_remembered(machine: Any) -> None:
    torch.cuda.memory._set_memory_metadata("epoch 1")
    assert torch.cuda.memory._get_memory_metadata() == "epoch 1"
