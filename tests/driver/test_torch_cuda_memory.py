"""torch.cuda's memory functions, over the simulated caching allocator."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

MIB, GIB = 2**20, 2**30

POOLS, METRICS = ("all", "small_pool", "large_pool"), ("current", "peak", "allocated", "freed")
STATISTICS = (
    "allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
    "inactive_split_bytes", "requested_bytes",
)  # fmt: skip
KEYS = (
    {f"{s}.{p}.{m}" for s in STATISTICS for p in POOLS for m in METRICS}
    | {f"{s}.{m}" for s in ("oversize_allocations", "oversize_segments") for m in METRICS}
    | {"num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free", "max_split_size"}
)


def test_what_a_tensor_takes_and_gives_back(machine: Any) -> None:
    x = torch.empty(MIB, device="cuda")  # 4 MiB
    assert torch.cuda.memory_allocated() == 4 * MIB
    assert torch.cuda.memory_reserved() == 20 * MIB
    assert torch.cuda.memory_allocated(1) == torch.cuda.memory_reserved("cuda:1") == 0
    del x
    assert torch.cuda.memory_allocated() == 0
    assert torch.cuda.max_memory_allocated() == 4 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == 0
    assert torch.cuda.max_memory_reserved() == torch.cuda.memory_reserved() == 20 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


def test_every_statistic_is_there(machine: Any) -> None:
    assert torch.cuda.memory_stats() == {}  # not initialised
    torch.cuda.init()
    stats = torch.cuda.memory_stats()
    assert stats.keys() >= KEYS
    assert {name for name in stats if name not in KEYS} <= {"num_oom_rejections"}
    assert all(isinstance(value, int) for value in stats.values())


def test_accumulated_statistics_can_be_reset(machine: Any) -> None:
    torch.empty(1, device="cuda")
    torch.empty(1, device="cuda")
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 2
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def test_the_summary_is_torch_s_own(machine: Any) -> None:
    x = torch.empty(MIB, device="cuda")
    summary = torch.cuda.memory_summary()
    assert "PyTorch CUDA memory summary, device ID 0" in summary
    assert "| Allocated memory      |   4096 KiB |   4096 KiB |   4096 KiB |      0 B   |" in summary
    assert "device ID 1" in torch.cuda.memory_summary(1, abbreviated=True)
    del x


def test_free_memory_counts_the_context_and_what_is_reserved(machine: Any) -> None:
    free, total = torch.cuda.mem_get_info()
    assert total == 4 * GIB
    context = total - free
    assert 50 * MIB < context < GIB
    x = torch.empty(MIB, device="cuda")
    assert torch.cuda.mem_get_info("cuda") == (total - context - 20 * MIB, total)
    assert torch.cuda.mem_get_info(1) == (free, total)
    del x


@pytest.mark.skipif(TORCH_VERSION < (2, 13), reason="other advice at the end")
def test_the_out_of_memory_message_word_for_word() -> None:
    machine = lab.enable("a100", memory="1GiB")
    try:
        x = torch.empty(3 * MIB + 1, dtype=torch.uint8, device="cuda")
        context = machine.devices[0].profile.context_bytes
        with pytest.raises(torch.OutOfMemoryError) as raised:
            torch.empty(2 * GIB + 1, dtype=torch.uint8, device="cuda")
        free = (GIB - context - 20 * MIB) / MIB
        # the request is 2 GiB and a byte, the segment asked for 2 MiB more
        assert str(raised.value) == (
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 1024.00 MiB of which "
            f"{free:.2f} MiB is free. Including non-PyTorch memory, this process has {context / MIB + 20:.2f} MiB "
            "memory in use. Of the allocated memory 3.00 MiB is allocated by PyTorch, and 17.00 MiB is reserved by "
            "PyTorch but unallocated. If reserved but unallocated memory is large try setting "
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
            "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
            "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
        )
        assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        del x
    finally:
        lab.disable()


@pytest.mark.parametrize(
    ("nbytes", "said"), [(1, "2.00 MiB"), (MIB + 1, "20.00 MiB"), (11 * MIB, "12.00 MiB"), (3 * GIB, "3.00 GiB")]
)
def test_the_message_names_the_segment_that_was_asked_for(machine: Any, nbytes: int, said: str) -> None:
    torch.cuda.set_per_process_memory_fraction(0.0)
    with pytest.raises(torch.OutOfMemoryError, match=f"Tried to allocate {said}. .* in use. 0 bytes allowed; Of the"):
        torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def test_a_fraction_limits_one_device(machine: Any) -> None:
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    torch.cuda.set_per_process_memory_fraction(0.25, 1)
    assert torch.cuda.get_per_process_memory_fraction("cuda:1") == 0.25
    assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
    x = torch.empty(GIB, dtype=torch.uint8, device="cuda:1")
    with pytest.raises(torch.OutOfMemoryError, match=r"1024\.00 MiB allowed; "):
        torch.empty(1, device="cuda:1")
    torch.empty(2 * GIB, dtype=torch.uint8, device="cuda:0")
    del x
    with pytest.raises(TypeError, match="Invalid type for fraction argument, must be `float`"):
        torch.cuda.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match=r"Invalid fraction value: 2.0. Allowed range: 0~1"):
        torch.cuda.set_per_process_memory_fraction(2.0)


def test_observers_hear_of_an_out_of_memory_error_before_it_is_raised(machine: Any) -> None:
    heard = []
    torch.cuda.init()
    torch._C._cuda_attach_out_of_memory_observer(lambda *figures: heard.append(figures))
    free, total = torch.cuda.mem_get_info(1)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(8 * GIB, dtype=torch.uint8, device="cuda:1")
    assert heard == [(1, 8 * GIB, total, free)]


@pytest.mark.parametrize(("index", "said"), [(0, ""), (5, "\x05: did you call init?")])
def test_statistics_of_no_initialised_device(machine: Any, index: int, said: str) -> None:
    if index:
        torch.cuda.init()
    with pytest.raises(RuntimeError) as raised:
        torch.cuda.reset_peak_memory_stats(index)
    assert str(raised.value) == f"Invalid device argument {said}"


def test_the_host_allocator_and_the_processes(machine: Any) -> None:
    torch.cuda.init()
    stats = torch.cuda.host_memory_stats()
    assert stats["active_bytes.current"] == stats["num_host_alloc"] == stats["host_alloc_time.total"] == 0
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    if not torch.cuda._HAS_PYNVML:
        assert torch.cuda.list_gpu_processes() == "pynvml module not found, please install nvidia-ml-py"


def test_the_backend_and_the_caching_switch(machine: Any) -> None:
    torch.cuda.init()
    assert torch.cuda.get_allocator_backend() == "native"
    if TORCH_VERSION >= (2, 13):
        with torch.cuda.memory.caching_allocator_disabled():
            pass
    torch.cuda.caching_allocator_enable(True)


def test_memory_that_is_not_cached_is_the_devices_and_in_none_of_torchs_figures(machine: Any) -> None:
    cached = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.caching_allocator_enable(False)
    assert not torch._C._cuda_cudaCachingAllocator_is_enabled()
    first, second = (torch.ones(n * MIB, dtype=torch.uint8, device="cuda") for n in (3, 5))
    assert first.sum().item() == 3 * MIB
    assert free - torch.cuda.mem_get_info()[0] == 8 * MIB
    first.record_stream(torch.cuda.Stream())
    del first
    assert free - torch.cuda.mem_get_info()[0] == 5 * MIB
    torch.cuda.caching_allocator_enable(True)
    del second
    torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.max_memory_allocated() == cached.nbytes + 4 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == cached.nbytes
    assert torch.cuda.mem_get_info()[0] == free


def test_caching_can_be_turned_off_for_a_whole_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    lab.enable("a100", memory="1GiB")
    try:
        for _ in range(3):
            x = torch.empty(400 * MIB, dtype=torch.uint8, device="cuda")
            assert (torch.cuda.memory_reserved(), torch.cuda.memory_allocated()) == (0, 0)
            del x
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\.07 GiB"):
            torch.empty(1100 * MIB, dtype=torch.uint8, device="cuda")
    finally:
        lab.disable()


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    lab.enable("a100", memory="1GiB")
    try:
        torch.cuda.init()
        assert torch.cuda.memory_stats()["max_split_size"] == 128 * MIB
        settings = torch.cuda.memory._snapshot()["allocator_settings"]
        assert settings["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:128"
    finally:
        lab.disable()


def test_settings_while_running(machine: Any) -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    x = torch.empty(MIB, device="cuda")
    assert all(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())
    assert torch._C._accelerator_getAllocatorSettings() == "expandable_segments:True"
    del x


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max_split_size_mb:1", "CachingAllocator option max_split_size_mb too small, must be >= 20"),
        ("expandable_segments:1", "Expected 'True' or 'False' at index 2 in ConfigTokenizer but got '1'"),
        ("garbage_collection_threshold:2", r"garbage_collect_threshold is invalid, set it in \(0.0, 1.0\)"),
        ("roundup_power2_divisions:3", "For roundups, the divisions has to be power of 2 "),
        ("no_such:1", "Unrecognized key 'no_such' in CUDA allocator config."),
    ],
)
def test_settings_that_torch_refuses(machine: Any, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        torch._C._accelerator_setAllocatorSettings(text)
    assert torch._C._accelerator_getAllocatorSettings() == ""


@pytest.mark.skipif(TORCH_VERSION < (2, 13), reason="the function is newer")
def test_the_size_of_cublas_workspaces_can_be_chosen(machine: Any) -> None:
    before = torch.backends.cuda.cublas_workspace_size()
    assert torch.backends.cuda.cublas_workspace_size(1 << 20) == 1 << 20
    x = torch.ones(4, 4, device="cuda")
    start = torch.cuda.memory_allocated()
    assert (x @ x).shape == (4, 4)
    assert torch.cuda.memory_allocated() - start == 1 << 20
    torch._C._cuda_resetCublasWorkspaceSize()
    assert torch.backends.cuda.cublas_workspace_size() == before


def test_more_than_an_exabyte(machine: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate more than 1EB"):
        torch.empty(1 << 60, dtype=torch.int8, device="cuda")


def test_asking_for_the_allocated_memory_is_cheap(machine: Any) -> None:
    torch.empty(1, device="cuda")
    best = min(_seconds(torch.cuda.memory_allocated) for _ in range(50))
    assert best < 50e-6


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
