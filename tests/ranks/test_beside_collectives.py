"""Kernels beside a collective take longer: by as much on every rank, and however the ranks are simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.distributed as dist

import fakegpu_lab as lab
from fakegpu_lab.ranks.planning import figures, implied_ranks
from tests.ranks.conftest import on_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def eight_cards() -> Iterator[None]:
    lab.enable("a100:8", compute="meta")
    yield
    lab.disable()


def milliseconds(kernel: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    kernel()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def on_own_stream(tensor: torch.Tensor) -> Callable[[], object]:
    return dist.all_reduce(tensor, async_op=True).wait  # type: ignore[union-attr]


def on_another_stream(tensor: torch.Tensor) -> Callable[[], object]:
    """As FSDP2 calls them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        dist.all_reduce(tensor)
    return stream.synchronize


def slower_beside(call: Callable[[torch.Tensor], Callable[[], object]] = on_own_stream) -> tuple[float, ...]:
    """How much longer a product, a large addition and a small one take beside an all-reduce."""
    gradients = torch.empty(1 << 29, device="cuda")
    matrix = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
    large, small = torch.empty(1 << 27, device="cuda"), torch.empty(1000, device="cuda")
    found = []
    for kernel in (lambda: matrix @ matrix, lambda: large.add_(1), lambda: small.add_(1)):
        kernel()
        alone = milliseconds(kernel)
        finish = call(gradients)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        kernel()
        end.record()
        finish()
        torch.cuda.synchronize()
        found.append(round(start.elapsed_time(end) / alone, 3))
    return tuple(found)


EXPECTED = (round(108 / 84, 3), 1.5, 1.0)
"""24 of 108 multiprocessors are taken, and 0.7 of 2 TB/s; a small kernel needs neither."""


@pytest.mark.parametrize("call", [on_own_stream, on_another_stream])
def test_all_ranks_compute_slower_by_what_a_collective_takes(call: Any) -> None:
    """Also those that call it first, when the others have not called it yet."""
    found = on_ranks(8, slower_beside, call)
    assert len(set(found)) == 1
    assert found[0] == pytest.approx(EXPECTED, rel=0.01)


def test_a_rank_whose_others_are_implied_computes_as_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = on_ranks(8, slower_beside)[0]
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "")
    lab.reset()
    implied_ranks.enter(figures.checked(8, 0, 8))
    try:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl")
        assert slower_beside() == simulated
        dist.destroy_process_group()
    finally:
        implied_ranks.leave()
        figures.current = None


def test_a_graphs_kernels_take_longer_at_a_replay_beside_a_collective() -> None:
    def program() -> tuple[float, float]:
        matrix = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
        matrix @ matrix
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            matrix @ matrix
        alone = milliseconds(graph.replay)
        work = dist.all_reduce(torch.empty(1 << 29, device="cuda"), async_op=True)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        work.wait()
        torch.cuda.synchronize()
        return alone, start.elapsed_time(end)

    for alone, beside in on_ranks(2, program):
        assert beside == pytest.approx(alone * 108 / 84, rel=0.01)


def test_a_gloo_group_takes_nothing_from_the_card() -> None:
    def program() -> float:
        matrix = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
        matrix @ matrix
        alone = milliseconds(lambda: matrix @ matrix)
        work = dist.all_reduce(torch.empty(1 << 20, device="cuda"), async_op=True)
        beside = milliseconds(lambda: matrix @ matrix)
        work.wait()
        return beside / alone

    assert on_ranks(2, program, backend="gloo") == [1.0, 1.0]
