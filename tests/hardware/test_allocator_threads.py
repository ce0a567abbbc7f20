"""free() is called by finalizers: at any moment, on any thread."""

from __future__ import annotations

import gc
import threading
from itertools import pairwise
from typing import Any

import pytest

from fakegpu_lab.hardware.allocator.caching_allocator import Block, CachingAllocator

MIB = 2**20


class Holder:
    """What the driver does: the last reference gone, the block is freed."""

    def __init__(self, gpu: CachingAllocator, nbytes: int) -> None:
        self.gpu, self.block = gpu, gpu.malloc(nbytes)

    def __del__(self) -> None:
        self.gpu.free(self.block)


def test_free_in_the_middle_of_malloc() -> None:
    gpu = CachingAllocator(0, 16 * MIB)
    other = gpu.malloc(4096)
    gpu.device_memory.on_call = lambda name, nbytes: gpu.free(other) if other.state == 1 else None
    gpu.malloc(MIB + 1 - 1)  # fits beside `other`: the device is not called
    gpu.malloc(MIB)  # is not: `other` is freed while malloc is at work
    assert gpu.allocated_bytes == 2 * MIB


def test_free_in_the_middle_of_a_recorded_malloc() -> None:
    gpu = CachingAllocator(0, 16 * MIB)
    others = [gpu.malloc(4096) for _ in range(3)]

    def frames() -> list[dict[str, Any]]:
        if others:
            gpu.free(others.pop())
        return []

    gpu.record_history(frames=frames)
    for _ in range(4):
        gpu.malloc(512)
    assert gpu.allocated_bytes == 4 * 512


def test_malloc_in_the_middle_of_malloc_is_refused_and_does_not_hang() -> None:
    gpu = CachingAllocator(0, 16 * MIB)

    def on_call(name: str, nbytes: int) -> None:
        gpu.malloc(512)

    gpu.device_memory.on_call = on_call
    with pytest.raises(RuntimeError, match="inside the allocator"):
        gpu.malloc(512)
    gpu.device_memory.on_call = None
    assert gpu.malloc(512).size == 512


def test_garbage_collector_frees_while_the_allocator_works() -> None:
    gpu = CachingAllocator(0, 256 * MIB)
    old = gc.get_threshold()
    gc.set_threshold(1)  # it runs at nearly every allocation of a Python object, inside malloc too
    try:
        for _ in range(300):
            ring: list[Any] = [Holder(gpu, 3000)]
            ring.append(ring)
            Holder(gpu, MIB + 5)
            del ring
    finally:
        gc.set_threshold(*old)
    gc.collect()
    assert gpu.allocated_bytes == 0
    gpu.empty_cache()
    assert gpu.reserved_bytes == 0


@pytest.mark.parametrize("call", ["empty_cache", "stats", "snapshot", "reset_peak", "reset_accumulated"])
def test_a_call_waits_for_another_thread(call: str) -> None:
    gpu = CachingAllocator(0, 16 * MIB)
    inside, refused = threading.Event(), []

    def other() -> None:
        inside.wait(10)
        try:
            getattr(gpu, call)()
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=other)
    thread.start()

    def on_call(name: str, nbytes: int) -> None:
        inside.set()
        thread.join(0.05)  # the other thread is waiting by now

    gpu.device_memory.on_call = on_call
    gpu.malloc(512)
    thread.join(10)
    assert not thread.is_alive()
    assert not refused


def test_four_threads() -> None:
    gpu = CachingAllocator(0, 2**40)
    handed: list[list[Block]] = [[] for _ in range(4)]
    failures: list[BaseException] = []
    start = threading.Barrier(4)

    def work(me: int) -> None:
        try:
            start.wait()
            for i in range(1500):
                handed[(me + i) % 4].append(gpu.malloc(1 + (i * 977) % (2 * MIB), stream=me % 2))
                mine = handed[me]
                if len(mine) > 5:
                    gpu.free(mine.pop())
                if i % 200 == 0:
                    gpu.empty_cache()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    live = sorted((block for blocks in handed for block in blocks), key=lambda block: block.address)
    assert gpu.allocated_bytes == sum(block.size for block in live)
    assert all(a.address + a.size <= b.address for a, b in pairwise(live))
    for block in live:
        gpu.free(block)
    gpu.empty_cache()
    assert (gpu.allocated_bytes, gpu.reserved_bytes) == (0, 0)
    stats: Any = gpu.stats()
    assert stats["allocation"]["all"]["allocated"] == stats["allocation"]["all"]["freed"] == 6000
