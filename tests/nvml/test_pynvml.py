"""pynvml in the process that has the machine, and torch.cuda's functions on top of it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.hardware.time.utilization import WINDOW_NS
from fakegpu_lab.nvml.smi import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.hardware.machine import Machine

pynvml = pytest.importorskip("pynvml")


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Two A100s that compute no values."""
    yield lab.enable("a100:2", memory="4GiB", compute="meta")
    lab.disable()


def work(products: int = 20) -> None:
    matrix = torch.ones(2048, 2048, device="cuda")
    for _ in range(products):
        matrix = matrix @ matrix
    torch.cuda.synchronize()


def test_torch_asks_it(machine: Machine) -> None:
    assert torch.cuda.utilization() == 0
    idle = torch.cuda.temperature(), torch.cuda.power_draw(), torch.cuda.clock_rate()
    work()
    assert 90 <= torch.cuda.utilization() <= 100
    assert 0 < torch.cuda.memory_usage() < torch.cuda.utilization()
    assert torch.cuda.temperature() > idle[0]
    assert idle[1] < torch.cuda.power_draw() <= 400_000
    assert (idle[2], torch.cuda.clock_rate()) == (210, 1410)
    assert torch.cuda.utilization(1) == 0
    assert f"process {os.getpid():>10d} uses" in torch.cuda.list_gpu_processes()
    assert torch.cuda.list_gpu_processes(1) == "GPU:1\nno processes are running"


def test_the_same_program_shows_the_same(machine: Machine) -> None:
    def readings() -> tuple[int, ...]:
        lab.reset()
        work(3)
        lab.host_work(0.001)
        return torch.cuda.utilization(), torch.cuda.temperature(), torch.cuda.power_draw()

    first = readings()
    assert 0 < first[0] < 100
    assert readings() == first


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")
def test_every_cpu_of_the_process_is_next_to_a_card(machine: Machine) -> None:
    """accelerate (``ACCELERATE_CPU_AFFINITY``) and others pin a process to what this returns."""
    pynvml.nvmlInit()
    words = pynvml.nvmlDeviceGetCpuAffinity(pynvml.nvmlDeviceGetHandleByIndex(0), (os.cpu_count() or 1) // 64 + 1)
    pynvml.nvmlShutdown()
    found = {64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1}
    assert found == os.sched_getaffinity(0)


def test_load_is_of_the_last_sixth_of_a_second(machine: Machine) -> None:
    work()
    lab.host_work(WINDOW_NS / 2e9)
    torch.cuda.synchronize()
    assert 0 < torch.cuda.utilization() < 60
    lab.host_work(WINDOW_NS / 1e9)
    torch.cuda.synchronize()
    assert torch.cuda.utilization() == 0


def test_what_the_stream_has_not_run_yet_does_not_count(machine: Machine) -> None:
    matrix = torch.ones(4096, 4096, device="cuda")
    torch.cuda.synchronize()
    lab.host_work(0.01)
    matrix @ matrix  # some 7 ms on a card, of which the host has seen nothing
    assert torch.cuda.utilization() < 10


def test_its_own_functions(machine: Machine) -> None:
    work()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
    assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    assert pynvml.nvmlDeviceGetName(handle) == torch.cuda.get_device_name(0)
    uuid = pynvml.nvmlDeviceGetUUID(handle)
    assert uuid == f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
    pci = pynvml.nvmlDeviceGetPciInfo(handle)
    assert pci.busId == "00000000:07:00.0"
    assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(pci.busId.encode())) == 0
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    told = lab.snapshot().devices[0].memory
    assert memory.used == told.context + told.reserved
    assert memory.total == memory.used + memory.free + memory.reserved
    (process,) = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert (process.pid, process.usedGpuMemory) == (os.getpid(), memory.used)
    assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == (8, 0)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetHandleByIndex(2)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetFanSpeed(handle)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetVbiosVersion(handle)
    pynvml.nvmlShutdown()


def test_it_must_be_initialised_as_the_real_one(machine: Machine) -> None:
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetCount()


def test_disabling_takes_it_away() -> None:
    before = pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), dict(os.environ)
    for _ in range(2):
        lab.enable("t4")
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1
        lab.disable()
        assert (pynvml.nvmlLib, dict(pynvml._nvmlGetFunctionPointer_cache), dict(os.environ)) == before
    if before[0] is None:
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlInit()


def test_hidden_cards_are_there_and_torch_finds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    lab.enable("a100:1,t4:1", compute="meta")
    work(2)
    assert torch.cuda.utilization() > 0
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetCount() == 2
    assert pynvml.nvmlDeviceGetUtilizationRates(pynvml.nvmlDeviceGetHandleByIndex(0)).gpu == 0
    lab.disable()


@pytest.mark.parametrize(
    ("card", "mode", "printed"),
    [("a100", [1, 1], "Enabled"), ("rtx-a6000", [0, 0], "Disabled"), ("rtx3090", None, "[N/A]")],
)
def test_ecc_is_what_nvidia_smi_says(
    card: str, mode: list[int] | None, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.enable(card, compute="meta")
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        if mode is None:
            with pytest.raises(pynvml.NVMLError_NotSupported):
                pynvml.nvmlDeviceGetEccMode(handle)
        else:
            assert pynvml.nvmlDeviceGetEccMode(handle) == mode
        assert main(["--query-gpu=ecc.mode.current", "--format=csv,noheader"]) == 0
        assert capsys.readouterr().out.strip() == printed
    finally:
        lab.disable()
