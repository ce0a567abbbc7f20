"""torch.cuda's devices: count, current, properties, peers, build."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

ORDINAL = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n"


def test_the_machine_is_seen_as_cuda(machine: Any) -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 2
    assert torch.cuda.current_device() == 0
    assert torch.cuda.get_device_name() == "NVIDIA A100-SXM4-80GB"
    assert torch.cuda.get_device_name("cuda:1") == torch.cuda.get_device_name(torch.device("cuda", 1))
    assert torch.cuda.get_device_capability(1) == (8, 0)
    assert torch.backends.cuda.is_built()
    assert torch.backends.cudnn.is_available()
    assert torch.cuda.is_bf16_supported()
    assert torch.cuda.is_tf32_supported()
    assert torch.cuda.has_half


def test_the_count_is_that_of_the_machine_before_and_after_initialisation_and_of_the_next_machine() -> None:
    for spec, count in (("a100:3", 3), ("t4", 1)):
        lab.enable(spec, memory="1GiB")
        assert torch.cuda.device_count() == count
        torch.cuda.init()
        assert torch.cuda.device_count() == count
        assert len(torch.cuda.default_generators) == count
    lab.disable()
    assert torch.cuda.device_count() == 0


@pytest.mark.parametrize(
    ("spec", "cuda", "bf16", "native_bf16"),
    [
        ("a100", "13.0", True, True),
        ("t4", "13.0", True, False),
        ("v100", "12.6", True, False),
        ("h100", "13.0", True, True),
        ("v100:1,h100:1", "12.6", True, False),
        ("jetson-agx-orin-64gb", "13.0", True, True),
        ("gb10", "13.0", True, True),
    ],
)
def test_the_build_suits_the_card_so_that_nothing_warns(
    spec: str, cuda: str, bf16: bool, native_bf16: bool, recwarn: pytest.WarningsRecorder
) -> None:
    lab.enable(spec, memory="1GiB")
    try:
        torch.cuda.init()
        assert torch.version.cuda == cuda
        assert torch.backends.cudnn.version() // 10000 == 9
        assert torch.cuda.nccl.version()[0] == 2
        assert torch.cuda.is_bf16_supported() is bf16
        assert torch.cuda.is_bf16_supported(including_emulation=False) is native_bf16
        assert all(arch.startswith("sm_") for arch in torch.cuda.get_arch_list())
        assert "-gencode compute=compute_" in torch.cuda.get_gencode_flags()
    finally:
        lab.disable()
    warned = [str(w.message) for w in recwarn]
    assert warned == [] or (spec == "gb10" and TORCH_VERSION < (2, 13))  # whose own builds warned of that card


@pytest.mark.parametrize("wanted", [1, "cuda:1", torch.device("cuda", 1)])
def test_setting_the_current_device(machine: Any, wanted: Any) -> None:
    torch.cuda.set_device(wanted)
    assert torch.cuda.current_device() == 1
    assert torch.ones(1, device="cuda").device == torch.device("cuda:1")


def test_device_contexts_nest_and_restore(machine: Any) -> None:
    here = torch.cuda.current_device
    with torch.cuda.device(1):
        assert here() == 1
        with torch.cuda.device("cuda:0"):
            assert here() == 0
        assert here() == 1
        with torch.cuda.device(None), torch.cuda.device(-1):
            assert here() == 1
    assert here() == 0
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert here() == 1
    with torch.cuda.device_of(torch.ones(1)):
        assert here() == 0
    with pytest.raises(KeyError), torch.cuda.device(1):
        raise KeyError
    assert here() == 0


def test_each_thread_has_its_current_device_and_starts_on_the_first(machine: Any) -> None:
    torch.cuda.set_device(1)
    seen = []

    def elsewhere() -> None:
        seen.append(torch.cuda.current_device())
        torch.cuda.set_device(0)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [0]
    assert torch.cuda.current_device() == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.cuda.set_device(2),
        lambda: torch.cuda.device(2).__enter__(),
        lambda: torch.cuda.synchronize(7),
        lambda: torch.cuda.mem_get_info(2),
        lambda: torch.ones(1, device="cuda:2"),
        lambda: torch.ones(1).to("cuda:2"),
        lambda: torch.cuda.Stream(2),
    ],
)
def test_a_device_that_is_not_there(machine: Any, call: Any) -> None:
    with pytest.raises(torch.AcceleratorError) as raised:
        call()
    assert str(raised.value).startswith(ORDINAL)


@pytest.mark.parametrize("function", ["get_device_properties", "get_device_name", "get_device_capability"])
def test_properties_of_a_device_that_is_not_there(machine: Any, function: str) -> None:
    with pytest.raises(AssertionError, match=r"^Invalid device id$"):
        getattr(torch.cuda, function)(99)


def test_properties_come_from_the_profile(machine: Any) -> None:
    properties, profile = torch.cuda.get_device_properties(1), machine.devices[1].profile
    expected = {
        "name": profile.name,
        "major": 8,
        "minor": 0,
        "total_memory": 4 * 2**30,
        "multi_processor_count": 108,
        "warp_size": 32,
        "max_threads_per_multi_processor": 2048,
        "max_threads_per_block": 1024,
        "regs_per_multiprocessor": 65536,
        "shared_memory_per_block": 48 * 1024,
        "shared_memory_per_block_optin": 163 * 1024,
        "shared_memory_per_multiprocessor": 164 * 1024,
        "L2_cache_size": 40 * 2**20,
        "is_integrated": 0,
        "is_multi_gpu_board": 0,
        "clock_rate": 1410_000,
        "memory_bus_width": 5120,
        "gcnArchName": profile.name,
        "pci_bus_id": 15,
        "pci_device_id": 0,
        "pci_domain_id": 0,
    }
    assert {name: getattr(properties, name) for name in expected} == expected
    assert properties.memory_clock_rate == round(profile.memory_clock_mhz * 1000)
    assert len(bytes(properties.uuid.bytes)) == 16
    assert properties is torch.cuda.get_device_properties("cuda:1")
    assert type(properties) is torch.cuda._CudaDeviceProperties


def test_properties_print_as_cuda_prints_them(machine: Any) -> None:
    properties = torch.cuda.get_device_properties(0)
    assert repr(properties) == (
        "_CudaDeviceProperties(name='NVIDIA A100-SXM4-80GB', major=8, minor=0, total_memory=4096MB, "
        f"multi_processor_count=108, uuid={properties.uuid}, pci_bus_id=7, pci_device_id=0, pci_domain_id=0, "
        "L2_cache_size=40MB)"
    )


def test_a_uuid_is_the_same_in_every_run_and_another_for_every_device(machine: Any) -> None:
    ids = [str(torch.cuda.get_device_properties(i).uuid) for i in range(2)]
    assert ids[0] != ids[1]
    assert ids[0] == "8fc058eb-ea6b-5f6f-8eb1-fc7f4618fc4f"


@pytest.mark.parametrize(
    ("spec", "pair", "expected"),
    [
        ("a100:2", (0, 1), True),
        ("a100:2", (1, 1), False),
        ("rtx4090:2", (0, 1), False),
        ("a100:1,t4:1", (0, 1), False),
        ("dgx-a100", (0, 7), True),
        ("dgx-a100 x2", (0, 8), False),
    ],
)
def test_peer_access(spec: str, pair: tuple[int, int], expected: bool) -> None:
    lab.enable(spec, memory="1GiB")
    try:
        assert torch.cuda.can_device_access_peer(*pair) is expected
    finally:
        lab.disable()


def test_peer_access_to_a_device_that_is_not_there(machine: Any) -> None:
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.can_device_access_peer(2, 0)
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.cuda.can_device_access_peer(0, 2)


def test_synchronising_and_the_rest_of_the_runtime(machine: Any) -> None:
    torch.cuda.synchronize()
    torch.cuda.synchronize("cuda:1")
    torch.cuda._sleep(1000)
    torch.cuda.ipc_collect()
    assert torch.cuda.current_blas_handle() != 0
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaProfilerStart())
    assert runtime.cudaGetErrorString(runtime.cudaError.success) == "no error"
    with pytest.raises(torch.cuda.CudaError, match=r"invalid device ordinal \(101\)"):
        torch.cuda.check_error(101)
    assert runtime.cudaHostRegister(4096, 10, 0) == runtime.cudaError.success
    assert runtime.cudaHostRegister(4096, 10, 0) != runtime.cudaError.success
    assert runtime.cudaHostUnregister(4096) == runtime.cudaError.success
    x = torch.ones(20)
    assert runtime.cudaHostRegister(x.data_ptr(), x.nbytes, 0) == runtime.cudaError.success
    assert x.is_pinned()
    assert x[3:].to("cuda", non_blocking=True).sum().item() == 17
    assert runtime.cudaHostUnregister(x.data_ptr()) == runtime.cudaError.success
    assert not x.is_pinned()
    with torch.cuda.profiler.profile():
        pass


def test_nvtx_ranges_nest(machine: Any) -> None:
    assert [torch.cuda.nvtx.range_push("a"), torch.cuda.nvtx.range_push("b")] == [0, 1]
    assert [torch.cuda.nvtx.range_pop(), torch.cuda.nvtx.range_pop()] == [1, 0]
    torch.cuda.nvtx.mark("here")
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))
    with torch.cuda.nvtx.range("d"):
        pass
