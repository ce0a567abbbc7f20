"""When CUDA is initialised, and what a fork does to it."""

from __future__ import annotations

import multiprocessing
import os
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fakegpu_lab as lab
from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

BAD_FORK = (
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
    "start method"
)
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@pytest.mark.parametrize(
    "ask", [torch.cuda.is_available, torch.cuda.device_count, torch.cuda.get_arch_list, torch.cuda.memory_allocated]
)
def test_asking_does_not_initialise(machine: Any, ask: Callable[[], object]) -> None:
    assert not torch.cuda.is_initialized()
    ask()
    torch.manual_seed(0)
    assert not torch.cuda.is_initialized()


@pytest.mark.parametrize(
    "use",
    [
        torch.cuda.init,
        torch.cuda.current_device,
        torch.cuda.get_device_name,
        torch.cuda.synchronize,
        torch.cuda.Stream,
        lambda: torch.ones(1, device="cuda"),
        lambda: torch.ones(1).cuda(),
        lambda: torch.ones(1).to("cuda:1"),
        lambda: torch.tensor([1.0], device="cuda"),
        lambda: torch.nn.Linear(1, 1).cuda(),
    ],
)
def test_using_does(machine: Any, use: Callable[[], object]) -> None:
    use()
    assert torch.cuda.is_initialized()


def test_calls_wait_for_initialisation_and_then_run_at_once(machine: Any) -> None:
    called = []
    torch.cuda._lazy_call(lambda: called.append(torch.cuda.current_device()))
    assert called == []
    torch.cuda.init()
    assert called == [0]
    torch.cuda._lazy_call(lambda: called.append(1))
    assert called == [0, 1]


def test_each_machine_is_initialised_anew(machine: Any) -> None:
    torch.cuda.init()
    lab.reset()
    assert not torch.cuda.is_initialized()
    assert torch.cuda.memory_stats() == {}


def in_a_fork(function: Callable[[], object]) -> object:
    """What the function returns, or the error it raises, in a forked child."""
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def child() -> None:
        try:
            results.put(function())
        except Exception as error:
            results.put(f"{type(error).__name__}: {error}")

    process = context.Process(target=child)
    process.start()
    result = results.get()
    process.join()
    return result


@forks
@pytest.mark.parametrize(
    "use",
    [
        lambda x: torch.ones(1, device="cuda"),
        lambda x: torch.ones(1).cuda(),
        lambda x: x + 1,
        lambda x: x.cpu(),
        lambda x: x.t(),
        lambda x: torch.cuda.current_device(),
        lambda x: torch.cuda.init(),
        lambda x: torch.cuda.synchronize(),
        lambda x: torch.cuda.get_device_name(),
        lambda x: torch.cuda.set_device(1),
    ],
)
def test_a_forked_child_cannot_use_cuda(machine: Any, use: Callable[[torch.Tensor], object]) -> None:
    x = torch.ones(2, 2, device="cuda")
    assert in_a_fork(lambda: use(x)) == f"RuntimeError: {BAD_FORK}"
    assert (x + 1).sum().item() == 8  # the parent still can


@forks
def test_what_a_forked_child_can_do(machine: Any) -> None:
    torch.ones(1, device="cuda")
    assert in_a_fork(lambda: (torch.ones(3) + 1).tolist()) == [2, 2, 2]
    assert in_a_fork(torch.cuda.is_initialized) is False
    assert in_a_fork(torch.cuda.is_available) is True
    assert in_a_fork(torch.cuda.memory_allocated) == 0
    assert in_a_fork(lambda: torch.manual_seed(3).initial_seed()) == 3


@forks
def test_asking_whether_cuda_is_there_is_enough_to_spoil_a_fork(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_NVML_BASED_CUDA_CHECK", raising=False)  # accelerate sets it for good
    assert in_a_fork(lambda: torch.ones(1, device="cuda").device.type) == "cuda"
    torch.cuda.is_available()
    assert in_a_fork(lambda: torch.ones(1, device="cuda")) == f"RuntimeError: {BAD_FORK}"


@forks
@pytest.mark.parametrize("pin_memory", [False, True])
def test_workers_of_a_data_loader_work_silently(
    machine: Any, pin_memory: bool, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    torch.ones(1, device="cuda")
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    loader = DataLoader(data, batch_size=4, num_workers=2, shuffle=True, pin_memory=pin_memory)
    total = torch.zeros((), device="cuda")
    for x, _ in loader:
        total += x.to("cuda", non_blocking=True).sum()
    assert total.item() == 28
    assert capfd.readouterr().err == ""
    # Python 3.12 and newer warn of any fork of a process with threads, which torch has, with and without a card.
    warned = [text for w in recwarn if "multi-threaded, use of fork()" not in (text := str(w.message))]
    assert warned == [] or (
        TORCH_VERSION < (2, 13) and "argument 'device' of Tensor.pin_memory()" in warned[0]
    )  # its own
