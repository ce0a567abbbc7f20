"""DataLoader workers and pinning threads."""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(8.0).reshape(8, 1), torch.arange(8))


class OnDevice(Dataset):
    """A dataset whose worker uses the GPU."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index)).cuda(1)


@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=forks)], ids=["in this process", "forked"])
def test_batches_of_host_tensors(machine, workers, pin):
    options = {"persistent_workers": True, "multiprocessing_context": "fork"} if workers else {}
    loader = DataLoader(numbers(), batch_size=4, num_workers=workers, pin_memory=pin, **options)
    torch.ones(1, device="cuda")  # CUDA is initialised: forked workers may not touch it, and need not
    for _ in range(2):
        batches = [(x.is_pinned(), y.is_pinned(), x.to("cuda", non_blocking=True).sum().item()) for x, y in loader]
        assert batches == [(pin, pin, 6.0), (pin, pin, 22.0)]
    assert machine.devices[0].ledger.h2d_count >= 4
    del loader


def test_the_pinning_thread_leaves_the_current_device_alone(machine):
    torch.cuda.set_device(1)
    for (x,) in DataLoader(TensorDataset(torch.ones(2, 1)), pin_memory=True, num_workers=0):
        assert x.cuda().device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 1
    assert threading.current_thread() is threading.main_thread()


def test_a_dataset_on_the_device(machine):
    loader = DataLoader(TensorDataset(torch.arange(4.0, device="cuda:1")), batch_size=2)
    assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3]]
    assert all(x.device == torch.device("cuda:1") for (x,) in loader)
    pinning = DataLoader(TensorDataset(torch.ones(4, device="cuda")), pin_memory=True)
    with pytest.raises(
        RuntimeError, match=r"cannot pin 'torch\.cuda\.FloatTensor' only dense CPU tensors can be pinned"
    ):
        next(iter(pinning))


@forks
@pytest.mark.parametrize("make", [OnDevice, lambda: torch.ones(2, 2, device="cuda")], ids=["moves", "slices"])
def test_a_forked_worker_may_not_touch_the_device(machine, make):
    torch.ones(1, device="cuda")
    batches = iter(DataLoader(make(), num_workers=1, multiprocessing_context="fork"))
    with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"):
        next(batches)
    batches._shutdown_workers()  # now, not when pytest lets go of the traceback


def test_a_spawned_worker_may_use_the_device(machine):
    loader = DataLoader(OnDevice(), num_workers=1, multiprocessing_context="spawn")
    assert [(x.device.index, x.tolist()) for x in loader] == [(1, [[0, 0]]), (1, [[1, 1]])]
