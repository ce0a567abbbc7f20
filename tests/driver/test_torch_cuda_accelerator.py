"""torch.accelerator says what torch.cuda says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

MIB = 2**20
accelerator = torch.accelerator


def test_the_accelerator_is_cuda(machine: Any) -> None:
    assert accelerator.is_available()
    assert accelerator.current_accelerator() == torch.device("cuda")
    assert accelerator.current_accelerator(check_available=True).type == "cuda"
    assert accelerator.device_count() == 2
    assert torch.get_device_module() is torch.cuda


def test_the_current_device_is_one_and_the_same(machine: Any) -> None:
    accelerator.set_device_index(1)
    assert accelerator.current_device_index() == torch.cuda.current_device() == 1
    with accelerator.device_index(0):
        assert torch.cuda.current_device() == 0
    with accelerator.device_index(None):
        assert torch.cuda.current_device() == 1
    accelerator.synchronize()
    accelerator.synchronize("cuda:0")
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        accelerator.set_device_index(2)


def test_the_current_stream_is_one_and_the_same(machine: Any) -> None:
    stream = torch.cuda.Stream(device=1)
    accelerator.set_stream(stream)
    assert accelerator.current_device_index() == 1
    assert accelerator.current_stream() == torch.cuda.current_stream() == stream
    assert accelerator.current_stream(0) == torch.cuda.default_stream(0)


def test_memory(machine: Any) -> None:
    assert accelerator.memory_stats() == {}
    accelerator.empty_cache()
    x = torch.empty(MIB, device="cuda")
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        assert getattr(accelerator, name)() == getattr(torch.cuda, name)() > 0
        assert getattr(accelerator, name)("cuda:1") == 0
    assert accelerator.memory_stats()["allocated_bytes.large_pool.current"] == 4 * MIB
    assert accelerator.get_memory_info(0) == torch.cuda.mem_get_info(0)
    del x
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    accelerator.empty_cache()
    if TORCH_VERSION >= (2, 13):
        accelerator.empty_host_cache()
    assert accelerator.max_memory_allocated() == accelerator.memory_reserved() == 0


def test_capabilities_name_the_dtypes(machine: Any) -> None:
    dtypes = accelerator.get_device_capability("cuda:1")["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.float8_e4m3fn, torch.complex64} <= dtypes


def test_copies_between_several_devices(machine: Any) -> None:
    x = torch.arange(6.0, device="cuda").reshape(3, 2)
    comm = torch.nn.parallel.comm
    assert [t.device.index for t in comm.broadcast(x, [0, 1])] == [0, 1]
    parts = comm.scatter(torch.arange(6.0).reshape(3, 2), ["cuda:0", "cuda:1"])
    assert [(t.device.index, len(t)) for t in parts] == [(0, 2), (1, 1)]
    assert torch.equal(comm.gather(parts, destination="cpu"), x.cpu())
    assert comm.gather(parts).device == torch.device("cuda:0")
    sum_ = comm.reduce_add([x, comm.broadcast(x, [0, 1])[1]])
    assert torch.equal(sum_.cpu(), 2 * x.cpu())


def test_collectives_of_one_process(machine: Any) -> None:
    nccl, inputs = torch.cuda.nccl, [torch.full((2,), i + 1.0, device=f"cuda:{i}") for i in range(2)]
    nccl.broadcast(inputs)
    assert inputs[1].tolist() == [1, 1]
    with pytest.raises(lab.FakeGpuError, match=r"Use torch\.distributed"):
        nccl.all_reduce(inputs)


def test_data_parallel_trains(machine: Any) -> None:
    torch.manual_seed(0)
    alone = torch.nn.Linear(2, 2).cuda()
    model = torch.nn.DataParallel(torch.nn.Linear(2, 2).cuda())
    model.module.load_state_dict(alone.state_dict())
    x = torch.randn(3, 2, device="cuda")
    model(x).sum().backward()
    alone(x).sum().backward()
    torch.testing.assert_close(model.module.weight.grad.cpu(), alone.weight.grad.cpu())


def test_the_default_generator_is_cudas(machine):
    """What torch.accelerator's random functions ask for, since torch 2.15; also before CUDA is initialised."""
    assert torch._C._accelerator_getDefaultGenerator(1) is torch.cuda.default_generators[1]
