"""DataLoader workers and pinning threads."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import fakegpu_lab as lab

forks = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")


def numbers() -> TensorDataset:
    return TensorDataset(torch.arange(8.0).reshape(8, 1), torch.arange(8))


class OnDevice(Dataset):
    """A dataset whose worker uses the GPU."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index)).cuda(1)


class Photos(Dataset):
    """A dataset that takes some milliseconds to read each of its items."""

    def __init__(self, *milliseconds: float) -> None:
        self.milliseconds = milliseconds

    def __len__(self) -> int:
        return len(self.milliseconds)

    def __getitem__(self, index: int) -> torch.Tensor:
        lab.host_work(self.milliseconds[index] / 1e3)
        if self.milliseconds[index] < 0.5:
            raise ValueError("a broken file")
        return torch.ones(2**18)


def epoch(loader: DataLoader, step: float = 1.0) -> float:
    """Simulated milliseconds of an epoch whose steps take `step` milliseconds each."""
    began = lab.clock()
    for _ in loader:
        lab.host_work(step / 1e3)
    return (lab.clock() - began) * 1e3


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


@pytest.mark.long
def test_a_spawned_worker_may_use_the_device(machine):
    loader = DataLoader(OnDevice(), num_workers=1, multiprocessing_context="spawn")
    assert [(x.device.index, x.tolist()) for x in loader] == [(1, [[0, 0]]), (1, [[1, 1]])]


@forks
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than this computer has cores
@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        (0, 8 * (2 + 1)),  # each batch is read, then used
        (1, 8 * 2 + 1),  # used while the next one is read: reading takes longer
        (2, 4 * 2 + 2 * 1),  # two at a time
        (4, 2 + 8 * 1),  # the program is the slower one, from the second batch on
    ],
)
def test_workers_read_while_the_program_works(machine, workers, expected):
    context = "fork" if workers else None
    loader = DataLoader(Photos(*[2] * 8), batch_size=1, num_workers=workers, multiprocessing_context=context)
    assert epoch(loader) == pytest.approx(expected)


@forks
def test_persistent_workers_take_the_same_time_in_every_epoch(machine):
    loader = DataLoader(
        Photos(*[2] * 8), batch_size=1, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    assert [epoch(loader), epoch(loader)] == pytest.approx([10, 10])


@forks
@pytest.mark.parametrize(("factor", "expected"), [(1, 1 + 3 * 2 + 6 + 4 * 2), (4, 4 + 6 + 4 * 2)])
def test_prefetching_bridges_a_batch_that_takes_long(machine, factor, expected):
    photos = Photos(1, 1, 1, 1, 6, 1, 1, 1)
    loader = DataLoader(photos, batch_size=1, num_workers=1, prefetch_factor=factor, multiprocessing_context="fork")
    assert epoch(loader, step=2) == pytest.approx(expected)


@forks
def test_the_pinning_thread_pins_beside_the_program(machine):
    with lab.record() as trace:
        torch.ones(2**18).pin_memory()
        torch.ones(2**18).pin_memory()  # in the pages of the first one, as for the loader's later batches
    pinning = trace.host_work[-1]
    milliseconds = (pinning.end - pinning.start) * 1e3
    loader = DataLoader(Photos(*[2] * 4), batch_size=1, num_workers=1, pin_memory=True, multiprocessing_context="fork")
    assert epoch(loader) == pytest.approx(4 * 2 + milliseconds + 1)


@forks
@pytest.mark.parametrize("pause", [0.0, 0.1])
def test_how_far_the_pinning_thread_is_ahead_in_real_time_does_not_matter(machine, pause):
    loader = DataLoader(Photos(*[2] * 4), batch_size=1, num_workers=1, pin_memory=True, multiprocessing_context="fork")
    with lab.record() as trace:
        for _ in loader:
            time.sleep(pause)
    locked = [round((work.end - work.start) * 1e6) for work in trace.host_work if work.name == "pin_memory"]
    assert (len(locked), len(set(locked[:2])), len(set(locked[2:]))) == (4, 1, 1)  # two batches live at a time
    assert locked[2] < locked[1]


@forks
@pytest.mark.parametrize(("milliseconds", "held"), [(1, [1, 3, 3, 3, 3, 2, 1]), (20, [1, 1, 1, 1, 1, 1, 1])])
def test_batches_that_are_pinned_ahead_use_memory(machine, milliseconds, held):
    """The thread is ahead by what the worker has read: prefetch_factor batches, but one was asked for only now."""
    photos = Photos(*[milliseconds] * 7)
    options = {"prefetch_factor": 3, "pin_memory": True, "multiprocessing_context": "fork"}
    batches, found = DataLoader(photos, batch_size=1, num_workers=1, **options), []
    for _ in batches:
        found.append(torch.cuda.host_memory_stats()["active_bytes.current"] / 2**20)
        lab.host_work(10e-3)
    assert found == held
    assert (
        torch.cuda.host_memory_stats()["num_host_alloc"] == max(held) + 1
    )  # while a batch is taken, the last one lives


class Fragile:
    """A batch that cannot be pinned."""

    def pin_memory(self) -> None:
        raise ValueError("too fragile")


@forks
def test_an_error_of_the_pinning_thread_arrives_as_it_is(machine):
    loader = DataLoader(
        Photos(1, 1), num_workers=1, pin_memory=True, collate_fn=lambda _: Fragile(), multiprocessing_context="fork"
    )
    with pytest.raises(ValueError, match=r"Caught ValueError in pin memory thread for device 0\.[^$]*too fragile"):
        next(iter(loader))


@forks
def test_a_recording_shows_the_wait_for_a_batch(machine):
    loader = DataLoader(Photos(5, 5), batch_size=1, num_workers=1, multiprocessing_context="fork")
    with lab.record() as trace:
        epoch(loader)
    waits = [work for work in trace.host_work if work.name == "waits for the DataLoader's workers"]
    assert [round((wait.end - wait.start) * 1e3, 3) for wait in waits] == [5, 4]


@forks
def test_an_error_in_a_worker_arrives_as_it_is(machine):
    batches = iter(DataLoader(Photos(1, 0), batch_size=1, num_workers=1, multiprocessing_context="fork"))
    assert next(batches).shape == (1, 2**18)
    with pytest.raises(ValueError, match="a broken file"):
        next(batches)
    batches._shutdown_workers()


@forks
def test_an_iterator_outlives_the_machine(machine):
    batches = iter(DataLoader(Photos(1, 1), batch_size=1, num_workers=1, multiprocessing_context="fork"))
    first = next(batches)
    lab.disable()
    assert torch.equal(next(batches), first)
