"""The caching allocator, rule by rule. Figures are CUDACachingAllocator.cpp's unless another source is
named."""

from __future__ import annotations

from typing import Any

import pytest

from fakegpu_lab.hardware.allocator.caching_allocator import (
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceOutOfMemory,
)

KIB, MIB, GIB = 2**10, 2**20, 2**30


def make(total: int = 16 * GIB, text: str = "", **kwargs: Any) -> CachingAllocator:
    return CachingAllocator(0, total, settings=AllocatorSettings.parse(text), **kwargs)


def stat(gpu: CachingAllocator, name: str) -> Any:
    """``stat(gpu, "active.all.current")``, as in torch.cuda.memory_stats."""
    value: Any = gpu.stats()
    for part in name.split("."):
        value = value[part]
    return value


# ------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),  # the large pool begins
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),  # rounding comes first
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # no more than 1 MiB would remain: not split
        (20 * MIB + 1, 20 * MIB + 512, 22 * MIB),
        (4 * 1024**3, 4 * GIB, 4 * GIB),
    ],
)
def test_first_allocation(nbytes: int, allocated: int, reserved: int) -> None:
    gpu = make()
    block = gpu.malloc(nbytes)
    assert (gpu.allocated_bytes, gpu.reserved_bytes, block.size) == (allocated, reserved, allocated)
    assert block.requested == stat(gpu, "requested_bytes.all.current") == nbytes


def test_large_split_leaves_more_than_one_mib() -> None:
    gpu = make()
    whole = gpu.malloc(20 * MIB)
    gpu.free(whole)
    assert gpu.malloc(19 * MIB).size == 20 * MIB
    gpu = make()
    gpu.free(gpu.malloc(20 * MIB))
    assert gpu.malloc(19 * MIB - 512).size == 19 * MIB - 512


def test_small_requests_share_a_segment_and_large_ones_another() -> None:
    gpu = make()
    blocks = [gpu.malloc(n) for n in (1000, MIB, 2 * MIB, 3 * MIB)]
    assert gpu.reserved_bytes == 22 * MIB
    assert stat(gpu, "segment.small_pool.current") == stat(gpu, "segment.large_pool.current") == 1
    for block in blocks:
        gpu.free(block)
    assert (gpu.allocated_bytes, gpu.reserved_bytes, gpu.max_allocated_bytes) == (0, 22 * MIB, 6 * MIB + KIB)


def test_segments_of_another_stream_are_not_shared() -> None:
    gpu = make()
    gpu.free(gpu.malloc(512, stream=0))
    gpu.malloc(512, stream=3)
    assert gpu.reserved_bytes == 4 * MIB


def test_zero_bytes_are_a_null_pointer() -> None:
    gpu = make()
    before = gpu.stats()
    nothing = gpu.malloc(0, stream=5)
    assert (nothing.address, nothing.size, nothing.requested, nothing.stream) == (0, 0, 0, 5)
    gpu.record_stream(nothing, 7)
    gpu.free(nothing)
    gpu.free(nothing)
    assert gpu.stats() == before
    with pytest.raises(ValueError, match="-1 bytes"):
        gpu.malloc(-1)


# --------------------------------------------------------------------------------- fit and merging


def carve(gpu: CachingAllocator, *sizes: int) -> list[Block]:
    """Blocks of these sizes with one of 512 bytes behind each, so that freed ones stay apart."""
    blocks = []
    for size in sizes:
        blocks.append(gpu.malloc(size))
        gpu.malloc(512)
    return blocks


def test_smallest_fit_then_lowest_address() -> None:
    gpu = make()
    big, first, second, small = carve(gpu, 8 * KIB, 4 * KIB, 4 * KIB, 2 * KIB)
    addresses = {name: block.address for name, block in (("first", first), ("second", second), ("big", big))}
    for block in (second, big, first, small):
        gpu.free(block)
    assert gpu.malloc(3 * KIB).address == addresses["first"]
    assert gpu.malloc(4 * KIB).address == addresses["second"]
    assert gpu.malloc(4 * KIB).address == addresses["big"]


def test_small_blocks_are_split_down_to_512_bytes() -> None:
    gpu = make()
    (hole,) = carve(gpu, 1024)
    gpu.free(hole)
    assert [gpu.malloc(1).size, gpu.malloc(1).size] == [512, 512]
    assert stat(gpu, "inactive_split.all.current") == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_neighbours_merge_until_the_segment_is_whole(order: tuple[int, ...]) -> None:
    gpu = make()
    blocks = [gpu.malloc(n) for n in (1000, 5000, 9000)]
    for i in order:
        gpu.free(blocks[i])
    assert stat(gpu, "inactive_split.all.current") == stat(gpu, "inactive_split_bytes.all.current") == 0
    gpu.empty_cache()
    assert gpu.memory_info() == (16 * GIB, 16 * GIB)


def test_inactive_split_is_what_cannot_be_given_back() -> None:
    gpu = make()
    a, b, c = (gpu.malloc(512) for _ in range(3))
    assert stat(gpu, "inactive_split.all.current") == 1  # the rest of the 2 MiB
    gpu.free(b)
    assert stat(gpu, "inactive_split.all.current") == 2
    assert stat(gpu, "inactive_split_bytes.all.current") == 2 * MIB - KIB
    gpu.free(a)
    gpu.empty_cache()
    assert gpu.reserved_bytes == 2 * MIB
    gpu.free(c)
    assert stat(gpu, "inactive_split_bytes.all") == {
        "current": 0,
        "peak": 2 * MIB - 512,
        # each malloc shrank the rest and each free merged: net changes, as free_block counts them
        "allocated": (2 * MIB - 512) + 512 + 512,
        "freed": 512 + 512 + (2 * MIB - 512),
    }


def test_freed_twice() -> None:
    gpu = make()
    block = gpu.malloc(512)
    gpu.free(block)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        gpu.free(block)
    assert gpu.allocated_bytes == 0
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        gpu.free(block)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        gpu.record_stream(block, 1)


def test_handle_that_somebody_keeps_is_never_given_out_again() -> None:
    gpu = make()
    kept = gpu.malloc(512)
    gpu.free(kept)
    assert gpu.malloc(512) is not kept


def test_addresses_look_real_and_come_back() -> None:
    gpu = make()
    first, second = gpu.malloc(30 * MIB), gpu.malloc(30 * MIB)
    assert first.address % (2 * MIB) == second.address % (2 * MIB) == 0
    assert hex(first.address).startswith("0x7f")
    where = first.address
    gpu.free(first)
    gpu.empty_cache()
    assert gpu.malloc(30 * MIB).address == where
    parts = [gpu.malloc(30 * MIB) for _ in range(3)]
    lowest = min(part.address for part in parts)
    for part in sorted(parts, key=lambda part: part.address)[:2]:
        gpu.free(part)
    gpu.empty_cache()
    assert gpu.malloc(60 * MIB).address == lowest  # freed neighbours are one hole again
    assert CachingAllocator(1, GIB).malloc(1).address != CachingAllocator(0, GIB).malloc(1).address


# ------------------------------------------------------------------------------------ out of memory


def test_out_of_memory_figures() -> None:
    gpu = make(100 * MIB, context_bytes=10 * MIB)
    keep = gpu.malloc(60 * MIB)
    small = gpu.malloc(1000)
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(40 * MIB + 5)
    error = caught.value
    assert (error.device, error.requested, error.segment) == (0, 40 * MIB + 5, 42 * MIB)
    assert (error.total, error.free, error.in_use) == (100 * MIB, 28 * MIB, 72 * MIB)
    assert error.allowed is None
    assert (error.allocated, error.private_pools) == (60 * MIB + KIB, 0)
    assert error.reserved_unallocated == 2 * MIB - KIB
    assert stat(gpu, "num_ooms") == stat(gpu, "num_alloc_retries") == 1
    gpu.free(keep)
    gpu.free(small)
    assert gpu.malloc(80 * MIB).size == 80 * MIB  # and the allocator goes on


def test_retry_gives_cached_segments_back() -> None:
    gpu = make(100 * MIB)
    gpu.free(gpu.malloc(60 * MIB))
    gpu.free(gpu.malloc(512))
    block = gpu.malloc(80 * MIB)
    assert gpu.reserved_bytes == block.size == 80 * MIB
    assert stat(gpu, "num_alloc_retries") == 1
    assert stat(gpu, "num_sync_all_streams") == 1
    assert (stat(gpu, "num_device_alloc"), stat(gpu, "num_device_free")) == (3, 2)
    assert stat(gpu, "num_ooms") == 0


def test_fragmentation_fails_where_bytes_would_suffice() -> None:
    gpu = make(40 * MIB)
    pieces = [gpu.malloc(9 * MIB) for _ in range(4)]
    gpu.free(pieces[0])
    gpu.free(pieces[2])
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(18 * MIB)
    assert caught.value.reserved_unallocated == 22 * MIB


def test_small_request_names_the_segment() -> None:
    gpu = make(MIB)
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(1)
    assert caught.value.segment == 2 * MIB


def test_memory_fraction_fails_before_the_device() -> None:
    gpu = make(100 * MIB)
    assert gpu.memory_fraction == 1.0
    gpu.set_memory_fraction(0.5)
    assert gpu.memory_fraction == 0.5
    gpu.malloc(40 * MIB)
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(12 * MIB)
    assert (caught.value.allowed, caught.value.free) == (50 * MIB, 60 * MIB)
    with pytest.raises(ValueError, match="invalid fraction"):
        gpu.set_memory_fraction(1.5)


def test_fraction_and_refusal_from_the_settings() -> None:
    gpu = make(100 * MIB, "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True")
    gpu.free(gpu.malloc(40 * MIB))
    with pytest.raises(DeviceOutOfMemory):
        gpu.malloc(50 * MIB)  # the cached 40 MiB are not given back first
    assert (stat(gpu, "num_oom_rejections"), stat(gpu, "num_alloc_retries")) == (1, 0)


def test_memory_of_others_counts() -> None:
    gpu = make(100 * MIB, context_bytes=10 * MIB)
    gpu.device_memory.other_bytes = 70 * MIB
    gpu.device_memory.context_bytes = 12 * MIB
    assert gpu.memory_info() == (18 * MIB, 100 * MIB)
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(2 * MIB)
    assert caught.value.in_use == 12 * MIB


def test_driver_calls_are_told() -> None:
    gpu = make()
    calls: list[tuple[str, int]] = []
    gpu.device_memory.on_call = lambda name, nbytes: calls.append((name, nbytes))
    gpu.free(gpu.malloc(1))
    gpu.free(gpu.malloc(1))
    gpu.empty_cache()
    gpu.configure(AllocatorSettings.parse("expandable_segments:True"))
    gpu.free(gpu.malloc(2 * MIB))
    gpu.empty_cache()
    assert calls == [("malloc", 2 * MIB), ("free", 2 * MIB), ("map", 20 * MIB), ("unmap", 20 * MIB)]


# ------------------------------------------------------------------------------------------ settings


def test_oversize_blocks_are_not_split() -> None:
    gpu = make(text="max_split_size_mb:32")
    assert stat(gpu, "max_split_size") == 32 * MIB
    big = gpu.malloc(64 * MIB)
    assert stat(gpu, "oversize_allocations.current") == stat(gpu, "oversize_segments.current") == 1
    gpu.free(big)
    assert stat(gpu, "oversize_allocations") == {"current": 0, "peak": 1, "allocated": 1, "freed": 1}
    gpu.malloc(8 * MIB)  # below max_split_size: never out of the oversize block
    assert gpu.reserved_bytes == 84 * MIB
    assert gpu.malloc(44 * MIB).size == 44 * MIB  # 20 MiB smaller than the cached one: too wasteful
    assert gpu.malloc(44 * MIB + 512).size == 64 * MIB


def test_block_of_just_the_split_limit_is_oversize() -> None:
    gpu = make(text="max_split_size_mb:32")
    gpu.free(gpu.malloc(32 * MIB))
    gpu.malloc(30 * MIB)
    assert gpu.reserved_bytes == 62 * MIB


def test_oversize_blocks_go_first_when_memory_is_short() -> None:
    gpu = make(100 * MIB, "max_split_size_mb:32")
    small = gpu.malloc(20 * MIB)
    gpu.free(gpu.malloc(64 * MIB))
    gpu.free(small)
    gpu.malloc(40 * MIB)  # the cached 64 MiB are too much for it; they are released, and no more than that
    assert gpu.reserved_bytes == 60 * MIB
    assert stat(gpu, "num_alloc_retries") == 0
    gpu.malloc(50 * MIB)  # nothing oversize is left to release, so everything cached goes
    assert gpu.reserved_bytes == 90 * MIB
    assert stat(gpu, "num_alloc_retries") == 1


@pytest.mark.parametrize(("request_mib", "kept_mib"), [(110, 40), (100, 40), (112, 0), (150, 0)])
def test_of_oversize_blocks_the_largest_go_until_there_is_enough(request_mib: int, kept_mib: int) -> None:
    """release_available_cached_blocks: none of the three is large enough by itself; 60 and 50 are 110."""
    gpu = make(150 * MIB, "max_split_size_mb:32")
    for block in [gpu.malloc(n * MIB) for n in (40, 50, 60)]:
        gpu.free(block)
    assert stat(gpu, "oversize_segments.current") == stat(gpu, "oversize_segments.peak") == 3
    gpu.malloc(request_mib * MIB)
    assert gpu.reserved_bytes == (request_mib + kept_mib) * MIB
    assert stat(gpu, "oversize_segments.current") == (2 if kept_mib else 1)
    assert stat(gpu, "oversize_segments.freed") == (2 if kept_mib else 3)
    assert stat(gpu, "num_alloc_retries") == 0
    assert stat(gpu, "segment.all.current") == (2 if kept_mib else 1)
    assert (stat(gpu, "num_device_alloc"), stat(gpu, "num_device_free")) == (4, 2 if kept_mib else 3)


def test_of_oversize_blocks_that_are_large_enough_the_smallest_goes() -> None:
    gpu = make(72 * MIB, "max_split_size_mb:32")
    for block in [gpu.malloc(n * MIB) for n in (40, 32)]:
        gpu.free(block)
    gpu.malloc(30 * MIB)  # less than the limit: never out of an oversize block; but 32 MiB less of those are enough
    assert (gpu.reserved_bytes, stat(gpu, "num_alloc_retries")) == (70 * MIB, 0)


def test_blocks_that_may_be_split_do_not_go_with_the_oversize_ones() -> None:
    """They go with everything else that is cached, if the oversize ones were not enough."""
    gpu = make(100 * MIB, "max_split_size_mb:32")
    for block in [gpu.malloc(n * MIB) for n in (30, 30, 40)]:
        gpu.free(block)
    gpu.malloc(38 * MIB + 512)  # fits into the block of 40
    gpu.malloc(60 * MIB)
    assert (gpu.reserved_bytes, stat(gpu, "num_alloc_retries")) == (100 * MIB, 1)
    gpu = make(100 * MIB, "max_split_size_mb:32")
    for block in [gpu.malloc(n * MIB) for n in (30, 30, 40)]:
        gpu.free(block)
    gpu.malloc(41 * MIB)  # 40 is too little, and the next one may be split: all goes
    assert (gpu.reserved_bytes, stat(gpu, "num_alloc_retries")) == (42 * MIB, 1)


def test_unlimited_split_size_reads_minus_one() -> None:
    assert stat(make(), "max_split_size") == -1  # SIZE_MAX as an int64


def test_garbage_collection_releases_what_was_unused_longest() -> None:
    gpu = make(100 * MIB, "garbage_collection_threshold:0.5")
    gpu.set_memory_fraction(1.0)
    old = gpu.malloc(30 * MIB)
    gpu.malloc(20 * MIB)
    gpu.free(old)
    for _ in range(5):
        gpu.free(gpu.malloc(10 * MIB, stream=1))
    assert gpu.reserved_bytes == 60 * MIB
    gpu.malloc(15 * MIB, stream=2)  # above the threshold of 50 MiB: the old 30 go, the young 10 stay
    assert gpu.reserved_bytes == (20 + 10 + 16) * MIB
    assert (stat(gpu, "num_device_free"), stat(gpu, "num_alloc_retries")) == (1, 0)


def power2_div(size: int, divisions: int) -> float:
    """`power2_div` of pytorch's test/test_cuda.py, which its allocator settings test expects."""
    power = 1
    while power < size:
        power *= 2
    if power == size:
        return power
    step = power / 2 / divisions
    result = power / 2
    while result < size:
        result += step
    return result


@pytest.mark.parametrize("divisions", [2, 4, 8, 64])
@pytest.mark.parametrize("nbytes", [4 * 21 * MIB, 4 * 100 * MIB, 3 * MIB + 7, 33 * MIB, 200_000])
def test_roundup_power2_divisions(nbytes: int, divisions: int) -> None:
    settings = AllocatorSettings.parse(f"roundup_power2_divisions:{divisions}")
    assert settings.round_size(nbytes) == power2_div(nbytes, divisions)
    gpu = make(text=f"roundup_power2_divisions:{divisions}")
    assert gpu.malloc(nbytes).size >= power2_div(nbytes, divisions)


def test_expandable_segment_grows_and_shrinks_by_pages() -> None:
    gpu = make(text="expandable_segments:True")
    first = gpu.malloc(30 * MIB)
    assert (gpu.reserved_bytes, first.size) == (40 * MIB, 30 * MIB)
    second = gpu.malloc(50 * MIB)
    assert second.address == first.address + first.size
    assert gpu.reserved_bytes == 80 * MIB
    assert stat(gpu, "segment.all.current") == 0  # mapped, not malloc'ed
    assert stat(gpu, "inactive_split.all.peak") == 0
    (segment,) = gpu.snapshot()["segments"]
    assert (segment["is_expandable"], segment["total_size"]) == (True, 80 * MIB)
    gpu.free(first)
    gpu.empty_cache()  # the whole pages of the 30 MiB: one of 20 MiB
    assert gpu.reserved_bytes == 60 * MIB
    gpu.malloc(15 * MIB)  # the lowest gap is filled again: its page, with the 10 MiB behind it
    assert gpu.reserved_bytes == 80 * MIB
    assert stat(gpu, "num_device_alloc") == 3


def test_expandable_segments_do_not_fragment() -> None:
    """The same program as in test_fragmentation_fails_where_bytes_would_suffice."""
    gpu = make(40 * MIB, "expandable_segments:True")
    pieces = [gpu.malloc(9 * MIB) for _ in range(4)]
    gpu.free(pieces[0])
    gpu.free(pieces[1])
    assert gpu.malloc(18 * MIB).size == 18 * MIB


# ------------------------------------------------------------------------------------ other streams


class Steps:
    """Streams that finish `now` marks."""

    def __init__(self) -> None:
        self.marks: dict[int, int] = {}
        self.now: dict[int, int] = {}
        self.waited: list[int] = []

    def record(self, stream: int) -> object:
        self.marks[stream] = self.marks.get(stream, 0) + 1
        return self.marks[stream]

    def passed(self, stream: int, mark: object) -> bool:
        assert isinstance(mark, int)
        return self.now.get(stream, 0) >= mark

    def wait(self, stream: int, mark: object) -> None:
        self.waited.append(stream)


def test_block_waits_for_the_streams_that_used_it() -> None:
    clock = Steps()
    gpu = make(clock=clock)
    block = gpu.malloc(512)
    address = block.address
    gpu.record_stream(block, 0)  # its own stream: nothing to wait for
    gpu.record_stream(block, 4)
    gpu.record_stream(block, 5)
    gpu.free(block)
    assert gpu.allocated_bytes == 0
    assert stat(gpu, "active_bytes.all.current") == stat(gpu, "requested_bytes.all.current") == 512
    assert gpu.malloc(512).address != address
    clock.now[4] = 1
    assert gpu.malloc(512).address != address
    clock.now[5] = 1
    assert gpu.malloc(512).address == address
    assert stat(gpu, "active.all") == {"current": 3, "peak": 3, "allocated": 4, "freed": 1}


def test_empty_cache_waits() -> None:
    clock = Steps()
    gpu = make(clock=clock)
    block = gpu.malloc(30 * MIB)
    gpu.record_stream(block, 4)
    gpu.free(block)
    gpu.empty_cache()
    assert (clock.waited, gpu.reserved_bytes) == ([4], 0)
    assert stat(gpu, "num_sync_all_streams") == 1


def test_freed_memory_comes_back_at_the_next_malloc_if_streams_are_done() -> None:
    gpu = make()
    block = gpu.malloc(512)
    gpu.record_stream(block, 4)
    gpu.free(block)
    assert stat(gpu, "active.all.current") == 1  # nobody has asked the event yet
    gpu.malloc(512)
    assert stat(gpu, "active.all.current") == 1


# --------------------------------------------------------------------------------- pools, statistics


def test_private_pool_keeps_its_memory() -> None:
    gpu = make(100 * MIB)
    pool = (0, 1)
    gpu.hold_pool(pool)
    block = gpu.malloc(30 * MIB, pool=pool)
    gpu.free(block)
    gpu.empty_cache()
    assert gpu.reserved_bytes == 30 * MIB
    with pytest.raises(DeviceOutOfMemory) as caught:
        gpu.malloc(80 * MIB)
    assert caught.value.private_pools == caught.value.allocated == 30 * MIB
    assert caught.value.reserved_unallocated == 0
    assert gpu.snapshot()["segments"][0]["segment_pool_id"] == pool
    gpu.drop_pool(pool)
    gpu.malloc(80 * MIB)
    private = stat(gpu, "reserved_bytes_by_private_pools")[pool]["all"]
    assert private == {"current": 0, "peak": 30 * MIB, "allocated": 30 * MIB, "freed": 30 * MIB}


def test_peak_and_totals_can_be_reset() -> None:
    gpu = make()
    gpu.free(gpu.malloc(30 * MIB))
    keep = gpu.malloc(512)
    gpu.reset_peak()
    assert gpu.max_allocated_bytes == 512
    assert gpu.max_reserved_bytes == 32 * MIB
    gpu.reset_accumulated()
    gpu.free(keep)
    assert stat(gpu, "allocation.all") == {"current": 0, "peak": 1, "allocated": 0, "freed": 1}
    assert stat(gpu, "num_device_alloc") == 0


# ------------------------------------------------------------------------------------ a block freed a moment ago


def row(gpu: CachingAllocator, *sizes: int) -> list[Block]:
    """Blocks side by side in a new segment."""
    return [gpu.malloc(size) for size in sizes]


def give_back(gpu: CachingAllocator, block: Block) -> int:
    """Free a block and have it put back; returns where it was."""
    address = block.address
    gpu.free(block)
    assert gpu.allocated_bytes >= 0  # looking puts it back
    return address


def test_a_lower_hole_of_the_same_size_goes_first() -> None:
    gpu = make()
    blocks = row(gpu, 512, 512, 512, 512, 512)
    lower = give_back(gpu, blocks.pop(1))
    gpu.free(blocks.pop(2))
    assert gpu.malloc(512).address == lower


def test_a_hole_that_fits_better_than_the_joined_one_goes_first() -> None:
    gpu = make()
    blocks = row(gpu, 1024, 512, 1024, 512, 512)
    better = give_back(gpu, blocks.pop(0))
    give_back(gpu, blocks.pop(2))
    gpu.free(blocks.pop(1))  # with the hole after it, it makes 1536 bytes
    assert gpu.malloc(1024).address == better


@pytest.mark.parametrize("sizes", [(512,), (512, 512), (512, 512, 512)])
def test_a_block_given_again_is_counted_as_freed_and_taken(sizes: tuple[int, ...]) -> None:
    def program(look: bool) -> Any:
        gpu = make()
        blocks = row(gpu, *sizes)
        for _ in range(3):
            gpu.free(blocks.pop(0))
            if look:
                assert gpu.allocated_bytes >= 0
            blocks.insert(0, gpu.malloc(300))
        return gpu.stats(), [block.address for block in blocks]

    assert program(look=False) == program(look=True)
