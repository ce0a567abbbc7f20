"""torch.cuda.MemPool: what the pages of PyTorch's documentation do, and what its own tests expect."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch

import fakegpu_lab as lab

if TYPE_CHECKING:
    from collections.abc import Iterator

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _gpus() -> Iterator[None]:
    lab.enable("a100:2", memory="4GiB")
    yield
    lab.disable()


def mib(size: float, **options: Any) -> torch.Tensor:
    return torch.empty(int(size * MIB), dtype=torch.uint8, device="cuda", **options)


def pools_of(*pools: Any) -> list[int]:
    """How many segments each pool has."""
    return [len(pool.snapshot()) for pool in pools]


def test_a_pool_keeps_its_memory_apart_and_gives_it_back_when_it_is_deleted() -> None:
    pool = torch.cuda.MemPool()
    assert pool.id[0] == torch.cuda.graph_pool_handle()[0] == 0
    assert (pool.use_count(), pool.allocator) == (1, None)
    with torch.cuda.use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = mib(30)
    outside = mib(30)
    assert pool.use_count() == 1
    (segment,) = pool.snapshot()
    assert segment["segment_pool_id"] == pool.id
    assert segment["address"] == inside.data_ptr()
    assert len(torch.cuda.memory_snapshot()) == 2
    del inside, outside
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 30 * MIB  # the pool's: it is still held
    with torch.cuda.use_mem_pool(pool):
        again = mib(25)
    assert again.data_ptr() == segment["address"]
    del again, pool
    assert torch.cuda.memory_reserved() == 0


def test_a_tensor_outlives_its_pool() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        tensor = mib(30)
    del pool
    assert torch.cuda.memory_reserved() == 30 * MIB
    del tensor
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


def test_the_innermost_pool_serves() -> None:
    outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(outer):
        kept = [mib(20)]
        with torch.cuda.use_mem_pool(inner):
            kept.append(mib(20))
            with pytest.raises(RuntimeError, match="already recording to mempool_id"), torch.cuda.use_mem_pool(inner):
                pass
        kept.append(mib(20))
    assert pools_of(outer, inner) == [2, 1]


def test_a_pool_serves_one_thread_on_all_its_streams_and_one_device() -> None:
    pool, kept = torch.cuda.MemPool(), []
    with torch.cuda.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: kept.append(mib(20)))
        thread.start()
        thread.join()
        kept.append(torch.empty(20 * MIB, device="cuda:1"))
        assert pools_of(pool) == [0]
        with torch.cuda.stream(torch.cuda.Stream()):
            kept.append(mib(20))
    assert pools_of(pool) == [1]
    with torch.cuda.use_mem_pool(pool, device=1):
        kept.append(torch.empty(20 * MIB, device="cuda:1"))
    assert {segment["device"] for segment in pool.snapshot()} == {0, 1}


def test_the_backward_pass_has_a_thread_of_its_own() -> None:
    pool = torch.cuda.MemPool()
    weight = torch.ones(5 * MIB, device="cuda", requires_grad=True)  # 20 MiB
    loss = weight.sum()
    with torch.cuda.use_mem_pool(pool):
        loss.backward()
    assert [segment["total_size"] for segment in pool.snapshot()] == [2 * MIB]  # the loss's own gradient, made before


def test_a_pool_for_the_last_resort_is_refused() -> None:
    for options in ({"use_on_oom": True}, {"no_split": True}):
        with pytest.raises(lab.FakeGpuError, match="not split"):
            torch.cuda.MemPool(**options)


def test_a_cuda_graph_may_share_the_pool() -> None:
    pool, graph = torch.cuda.MemPool(), torch.cuda.CUDAGraph()
    static = torch.zeros(4, device="cuda")
    with torch.cuda.graph(graph, pool=pool.id):
        result = static + 1
    assert pool.use_count() == 2
    graph.replay()
    assert result.tolist() == [1.0] * 4
    assert pools_of(pool) == [1]
    del graph
    assert pool.use_count() == 1


def test_another_allocator_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"^Another memory allocator .* is not simulated\.$"):
        torch.cuda.MemPool(object())
