"""Pinned host memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.driver.copies import pinned_memory


def test_a_pinned_copy(machine):
    tensor = torch.arange(6.0).reshape(2, 3).t()
    copy = tensor.pin_memory()
    assert copy.is_pinned()
    assert not tensor.is_pinned()
    assert copy.stride() == tensor.stride()
    assert torch.equal(copy, tensor)
    assert copy.data_ptr() != tensor.data_ptr()
    assert copy.pin_memory() is copy
    assert pinned_memory.is_pinned_tensor(copy)
    assert not pinned_memory.is_pinned_tensor(tensor)


def test_views_are_pinned_and_copies_are_not(machine):
    tensor = torch.ones(2, 3).pin_memory()
    assert tensor[1].is_pinned()
    assert tensor.t().detach().is_pinned()
    assert tensor.untyped_storage().is_pinned()
    assert not tensor.clone().is_pinned()
    assert not (tensor + 1).is_pinned()
    assert not tensor.cuda().cpu().is_pinned()


def test_pinnedness_outlives_the_tensor_that_was_pinned(machine):
    tensor = torch.ones(2, 3).pin_memory()
    view = tensor[1]
    del tensor
    assert view.is_pinned()


def test_storages(machine):
    storage = torch.ones(3).untyped_storage()
    assert not storage.is_pinned()
    assert storage.pin_memory().is_pinned()
    with pytest.raises(TypeError, match=r"cannot pin 'torch\.storage.UntypedStorage' only CPU memory can be pinned"):
        torch.ones(3, device="cuda").untyped_storage().pin_memory()


def test_device_tensors_are_refused(machine):
    tensor = torch.ones(3, device="cuda", dtype=torch.float16)
    assert not tensor.is_pinned()
    with pytest.raises(RuntimeError) as raised:
        tensor.pin_memory()
    assert str(raised.value) == "cannot pin 'torch.cuda.HalfTensor' only dense CPU tensors can be pinned"


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: torch.empty(3, **options),
        lambda **options: torch.zeros(3, **options),
        lambda **options: torch.ones((2, 3), **options),
        lambda **options: torch.full((2,), 1.0, **options),
        lambda **options: torch.rand(3, **options),
        lambda **options: torch.randn(3, **options),
        lambda **options: torch.randint(5, (3,), **options),
        lambda **options: torch.arange(3, **options),
        lambda **options: torch.tensor([1.0], **options),
        lambda **options: torch.empty_strided((2, 2), (1, 2), **options),
        lambda **options: torch.empty_like(torch.ones(3), **options),
        lambda **options: torch.zeros_like(torch.ones(3), **options),
        lambda **options: torch.ones(3).new_empty(3, **options),
        lambda **options: torch.ones(3).new_zeros(3, **options),
    ],
)
def test_factories(machine, make):
    assert make(pin_memory=True).is_pinned()
    assert not make(pin_memory=False).is_pinned()
    assert not make().is_pinned()
    with pytest.raises(RuntimeError, match=r"^Only dense CPU tensors can be pinned$"):
        make(pin_memory=True, device="cuda")


def test_a_default_device_is_obeyed_also_by_the_wrapped_factories(machine):
    with torch.device("cuda:1"):
        assert torch.empty(2).device == torch.zeros(2).device == torch.tensor([1]).device == torch.device("cuda:1")
        with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
            torch.empty(2, pin_memory=True)


def test_gradients_flow_through_pinning(machine):
    weight = torch.ones(2, requires_grad=True)
    weight.pin_memory().cuda().sum().backward()
    assert weight.grad.tolist() == [1, 1]
    assert not isinstance(nn.Parameter(torch.ones(2)).pin_memory(), nn.Parameter)


def test_an_asynchronous_copy_to_the_host_lands_in_pinned_memory(machine):
    tensor = torch.ones(3, device="cuda")
    assert tensor.to("cpu", non_blocking=True).is_pinned()
    assert not tensor.to("cpu").is_pinned()


def test_sparse(machine):
    sparse = torch.eye(2).to_sparse()
    assert not sparse.is_pinned()
    assert sparse.pin_memory().is_pinned()
    assert torch.equal(sparse.pin_memory().to_dense(), torch.eye(2))


def test_the_device_argument_is_deprecated(machine):
    with pytest.warns(DeprecationWarning, match=r"is deprecated\. Please do not pass this argument"):
        assert torch.ones(2).pin_memory("cuda").is_pinned()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_torchscript_knows_the_factories(machine):
    @torch.jit.script
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(2) + torch.ones_like(x) + x.new_zeros(2)

    assert add(torch.ones(2)).tolist() == [2, 2]


TEN_MB = 2_500_000
LOCKING, COPYING = 4096 * 2.5e-6, 1e-3  # 16 MiB in pages of 4 KiB; 10 MB at 10 GB/s


def seconds(run):
    start = lab.clock()
    result = run()
    return result, lab.clock() - start


def test_pinning_keeps_the_host_busy_and_less_so_when_the_memory_is_used_again(machine):
    torch.cuda.synchronize()  # creates the context
    tensor = torch.ones(TEN_MB)
    first, took = seconds(tensor.pin_memory)
    assert took == pytest.approx(LOCKING + COPYING)
    assert seconds(first.pin_memory) == (first, 0)
    _, took = seconds(tensor.pin_memory)  # while the first block is held
    assert took == pytest.approx(LOCKING + COPYING)
    del first
    assert seconds(tensor.pin_memory)[1] == pytest.approx(COPYING)
    assert seconds(lambda: torch.empty(TEN_MB, pin_memory=True))[1] == 0
    assert seconds(lambda: torch.empty(2 * TEN_MB, pin_memory=True))[1] == pytest.approx(2 * LOCKING)


def test_pinning_in_front_of_a_copy_takes_longer_than_the_pageable_copy(machine):
    """As in PyTorch's tutorial on pinned memory."""

    def send(source):
        there = source.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        return there

    tensor = torch.ones(1_000_000)
    tensor.pin_memory()  # its memory is used again
    send(tensor)  # creates the context
    pageable = seconds(lambda: send(tensor))[1]
    assert seconds(lambda: send(tensor.pin_memory()))[1] > pageable
    pinned = tensor.pin_memory()
    assert seconds(lambda: send(pinned))[1] < pageable


def test_pinned_memory_is_not_used_again_before_its_last_copy_is_done(machine):
    tensor, work = torch.ones(TEN_MB), torch.ones(1, device="cuda")

    def send():
        torch.cuda._sleep(int(1e9))
        tensor.pin_memory().to("cuda", non_blocking=True)

    send()
    assert seconds(send)[1] > LOCKING
    torch.cuda.synchronize()
    assert seconds(send)[1] < 0.2 * LOCKING
    assert work.item() == 1


def test_the_statistics_of_pinned_memory(machine):
    torch.cuda.init()
    mib = 2**20
    tensor = torch.ones(300 * 1024, pin_memory=True)  # 1.17 MiB in a block of 2 MiB
    assert figures() == {"owned": 2 * mib, "used": 2 * mib, "calls": 1}
    assert torch.cuda.host_memory_stats()["host_alloc_time.avg"] == 512 * 2.5  # pages of 4 KiB, 2.5 µs each
    del tensor
    assert figures() == {"owned": 2 * mib, "used": 0, "calls": 1}
    again, larger = torch.empty(2 * mib, dtype=torch.uint8, pin_memory=True), torch.empty(mib, pin_memory=True)
    assert figures() == {"owned": 6 * mib, "used": 6 * mib, "calls": 2}
    del again
    torch._C._host_emptyCache()
    assert figures() == {"owned": 4 * mib, "used": 4 * mib, "calls": 2}
    assert torch.cuda.host_memory_stats()["num_host_free"] == 1
    assert torch.cuda.host_memory_stats()["allocated_bytes.peak"] == 6 * mib
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    stats = torch.cuda.host_memory_stats()
    assert (stats["allocated_bytes.peak"], stats["allocated_bytes.allocated"]) == (4 * mib, 0)
    assert larger.is_pinned()


def test_pinned_memory_is_active_until_its_copy_is_done(machine):
    torch.cuda._sleep(int(1e9))
    torch.ones(1024, pin_memory=True).to("cuda", non_blocking=True)
    assert figures()["used"] == lab.snapshot().pinned == lab.snapshot().pinned_reserved == 4096
    torch.cuda.synchronize()
    torch.ones(1, pin_memory=True)  # the allocator looks at events when it allocates
    assert figures()["used"] == 0
    assert (lab.snapshot().pinned, lab.snapshot().pinned_reserved) == (0, 4096 + 4)


def figures():
    stats = torch.cuda.host_memory_stats()
    names = {"owned": "allocated_bytes.current", "used": "active_bytes.current", "calls": "num_host_alloc"}
    return {name: stats[key] for name, key in names.items()}


def test_a_copy_to_the_host_pays_for_pinned_memory_once(machine):
    tensor = torch.ones(TEN_MB, device="cuda")
    torch.cuda.synchronize()
    assert seconds(lambda: tensor.to("cpu", non_blocking=True))[1] > LOCKING
    torch.cuda.synchronize()
    assert seconds(lambda: tensor.to("cpu", non_blocking=True))[1] < 0.01 * LOCKING


def test_a_recording_shows_the_host_at_it(machine):
    with lab.record() as trace:
        torch.ones(TEN_MB).pin_memory()
    (work,) = trace.host_work
    assert work.name == "pin_memory"
    assert work.duration == pytest.approx(LOCKING + COPYING)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_pins_in_a_thread_of_its_own_if_it_has_workers(machine, workers):
    data = torch.utils.data.TensorDataset(torch.ones(2, TEN_MB))
    with lab.record() as trace:
        for (batch,) in torch.utils.data.DataLoader(data, pin_memory=True, num_workers=workers):
            assert batch.is_pinned()
    pinning = [work for work in trace.host_work if work.name == "pin_memory"]
    assert {work.thread == "MainThread" for work in pinning} == {workers == 0}
