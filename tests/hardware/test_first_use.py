"""The first use of a card loads what the next ones find: time of the host, and memory that PyTorch does not count."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import fakegpu_lab as lab
from fakegpu_lab.hardware import first_use
from fakegpu_lab.hardware.first_use import CONTEXT_NS, CUBLAS, CUDNN, NCCL, NEW_CONVOLUTION_NS

MIB = 2**20


def names(trace: Any) -> list[str]:
    return [use.name for use in trace.first_uses]


def outside(index: int = 0) -> int:
    """The bytes of a card that the process holds outside PyTorch's allocator."""
    free, total = torch.cuda.mem_get_info(index)
    return total - free - torch.cuda.memory_reserved(index)


def took(function: Any) -> float:
    torch.cuda.synchronize()
    before = lab.clock()
    function()
    torch.cuda.synchronize()
    return lab.clock() - before


@pytest.fixture(autouse=True)
def _two_cards() -> Any:
    lab.enable("a100:2")
    yield
    lab.disable()


def test_the_first_tensor_waits_for_the_context_of_its_card() -> None:
    times = [lab.clock()]
    for device in ("cuda:0", "cuda:0", "cuda:1"):
        torch.ones(4, device=device)
        times.append(lab.clock())
    cold, warm, other = (after - before for before, after in itertools.pairwise(times))
    assert cold == pytest.approx(CONTEXT_NS / 1e9, rel=0.01)
    assert other == pytest.approx(cold)
    assert warm < 1e-4


def test_a_synchronisation_creates_the_context_too() -> None:
    before = lab.clock()
    torch.cuda.synchronize()
    assert lab.clock() - before >= CONTEXT_NS / 1e9


def test_pinning_creates_the_context_too() -> None:
    torch.ones(4).pin_memory()
    assert lab.clock() >= CONTEXT_NS / 1e9


def test_a_recording_tells_first_uses_and_has_no_gaps_for_them() -> None:
    with lab.record() as cold:
        a = torch.ones(64, 64, device="cuda")
        a @ a
    with lab.record() as warm:
        a = torch.ones(64, 64, device="cuda")
        a @ a
    assert [(use.name, use.seconds) for use in cold.first_uses] == [("the CUDA context", 0.3), ("cuBLAS", 0.06)]
    line = Path(cold.first_uses[1].line)
    assert line.name.startswith(f"{Path(__file__).name}:")
    assert warm.first_uses == []
    assert cold.elapsed == pytest.approx(warm.elapsed)
    assert "first uses took the host 360 ms more" in cold.described()
    assert "first use" not in warm.described()


def test_clocks_and_events_show_first_uses() -> None:
    a = torch.ones(64, 64, device="cuda")
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    events[0].record()
    for event in events[1:]:
        a @ a
        event.record()
    torch.cuda.synchronize()
    cold, warm = (begin.elapsed_time(end) for begin, end in itertools.pairwise(events))
    assert cold - warm == pytest.approx(CUBLAS.ns / 1e6, rel=0.01)


def test_a_thread_goes_on_where_its_first_uses_ended() -> None:
    def work() -> None:
        torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert lab.clock() == pytest.approx((CONTEXT_NS + CUBLAS.ns) / 1e9, rel=0.01)


def test_libraries_take_what_was_measured() -> None:
    """The sources stand beside the figures: optimum-benchmark, cudnn-frontend#1066, nccl#604 and nccl#1685."""
    taken = {library.name: (library.ns, library.nbytes) for library in (CUBLAS, CUDNN, NCCL)}
    assert taken == {
        "cuBLAS": (60_000_000, 10 * MIB),
        "cuDNN": (100_000_000, 12 * MIB),
        "NCCL": (210_000_000, 50 * MIB),
    }
    assert first_use.CHANNEL_BYTES == 2 * (10 + 2) * MIB
    assert first_use.COMMUNICATOR_NS == 150_000_000


def test_the_first_product_loads_cublas() -> None:
    a = torch.ones(64, 64, device="cuda")
    held = outside()
    with lab.record() as trace:
        a @ a
        a @ a
    assert names(trace) == ["cuBLAS"]
    assert outside() - held == CUBLAS.nbytes
    cold = torch.ones(64, 64, device="cuda:1")
    first, second = took(lambda: cold @ cold), took(lambda: cold @ cold)
    assert first - second == pytest.approx(CUBLAS.ns / 1e9)


def test_each_new_convolution_is_planned_once() -> None:
    layer = nn.Conv2d(3, 8, 3, device="cuda")
    depthwise = nn.Conv2d(8, 8, 3, groups=8, device="cuda")
    small, large = (torch.ones(1, 3, n, n, device="cuda") for n in (8, 16))
    held = outside()
    with lab.record() as trace:
        depthwise(layer(small))
        layer(small)
        layer(large)
    assert names(trace) == ["cuDNN", *["a convolution of this shape"] * 2]
    assert outside() - held == CUDNN.nbytes
    with lab.record() as trace:
        layer(small).sum().backward()  # the gradient of the weights
    assert names(trace) == ["a convolution of this shape"]
    assert trace.first_uses[0].ns == NEW_CONVOLUTION_NS


def test_a_recurrent_layer_loads_cudnn() -> None:
    layer = nn.LSTM(8, 8, device="cuda")
    with lab.record() as trace:
        layer(torch.ones(3, 2, 8, device="cuda"))
    assert "cuDNN" in names(trace)


def test_cudnn_benchmark_tries_algorithms_at_the_first_call_and_empties_the_cache() -> None:
    layer, x = nn.Conv2d(64, 64, 3, device="cuda"), torch.ones(16, 64, 64, 64, device="cuda")
    layer(x)
    plain = took(lambda: layer(x))
    y = torch.ones(8, 64, 64, 64, device="cuda")
    torch.empty(64 * MIB, device="cuda")  # freed at once: cached
    assert torch.cuda.memory_reserved() > 256 * MIB
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        first, second = took(lambda: layer(y)), took(lambda: layer(y))
    assert torch.cuda.memory_reserved() < 256 * MIB
    assert first > second + 10 * second
    assert second < plain


def test_a_group_connects_once_and_takes_memory_for_its_channels() -> None:
    lab.enable("a100:4")

    def program() -> tuple[list[float], list[int]]:
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        x = torch.ones(4, device="cuda")
        times, held = [], [outside(rank)]
        for _ in range(2):
            times.append(took(lambda: dist.all_reduce(x)))
            held.append(outside(rank))
        dist.destroy_process_group()
        return times, [b - a for a, b in itertools.pairwise(held)]

    for (first, second), (taken, more) in lab.run_ranks(program, 4):
        assert first - second == pytest.approx(NCCL.ns / 1e9 + 4 * first_use.COMMUNICATOR_NS / 1e9, rel=0.01)
        assert taken == NCCL.nbytes + 24 * first_use.CHANNEL_BYTES  # 24 channels on an A100 with NVLink
        assert more == 0
    (first, _), (taken, _) = lab.run_ranks(program, 4)[0]  # NCCL is loaded, the group is a new one
    assert first == pytest.approx(4 * first_use.COMMUNICATOR_NS / 1e9, rel=0.01)
    assert taken == 24 * first_use.CHANNEL_BYTES


def test_a_group_that_is_gone_gives_its_memory_back() -> None:
    held: list[int] = []

    def program(destroy: bool) -> None:
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        dist.all_reduce(torch.ones(4, device="cuda"))
        if destroy:
            dist.destroy_process_group()
            held.append(outside(rank))

    torch.ones(4, device="cuda:0")
    before = outside()
    lab.run_ranks(program, 2, True)
    assert held == [before + NCCL.nbytes] * 2
    lab.run_ranks(program, 2, False)  # its ranks end
    assert outside() == before + NCCL.nbytes


def test_sends_that_are_in_no_batch_connect_each_pair() -> None:
    def program() -> list[str]:
        dist.init_process_group("nccl")
        rank = dist.get_rank()
        torch.cuda.set_device(rank)
        x = torch.ones(4, device="cuda")
        for _ in range(2):
            dist.send(x, 1) if rank == 0 else dist.recv(x, 0)
        dist.all_reduce(x)
        return []

    with lab.record() as trace:
        lab.run_ranks(program, 2)
    assert names(trace).count("NCCL between 2 ranks") == 4  # for each rank: the pair, then the group


def test_gloo_connects_nothing_on_the_card() -> None:
    def program() -> None:
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(4))

    with lab.record() as trace:
        lab.run_ranks(program, 2)
    assert names(trace) == []


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x @ x, r"CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate\(handle\)`"),
        (lambda x: torch.conv2d(x[None, None], x[None, None, :3, :3]), "CUDNN_STATUS_NOT_INITIALIZED"),
    ],
)
def test_a_library_without_room_fails_as_on_a_card(use: Any, message: str) -> None:
    lab.enable("a100", memory="1GiB")
    x = torch.ones(8, 8, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    filler = torch.empty(free - 4 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.raises(RuntimeError, match=message):
        use(x)
    del filler
    torch.cuda.empty_cache()
    use(x)


def test_a_group_without_room_fails_as_nccl_does() -> None:
    lab.enable("a100:2", memory="1GiB")

    def program() -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(dist.get_rank())
        dist.all_reduce(torch.ones(4, device="cuda"))

    with pytest.raises(dist.DistBackendError, match="Cuda failure 2 'out of memory'"):
        lab.run_ranks(program, 2)


def test_a_new_machine_is_cold_again() -> None:
    a = torch.ones(8, 8, device="cuda")
    a @ a
    lab.reset()
    assert took(lambda: torch.ones(8, 8, device="cuda") @ torch.ones(8, 8, device="cuda")) > CUBLAS.ns / 1e9
