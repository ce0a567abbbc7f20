"""Random programs: the allocator does what the obvious model does, and keeps its promises under any
settings."""

from __future__ import annotations

from typing import Any

import pytest
from allocator_model import Model, ModelBlock, ModelOutOfMemory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakegpu_lab.hardware.allocator.caching_allocator import (
    AllocatorSettings,
    Block,
    CachingAllocator,
    DeviceOutOfMemory,
)
from fakegpu_lab.hardware.allocator.statistics import DeviceCounters

MIB = 2**20
TOTAL, CONTEXT = 256 * MIB, 6 * MIB

sizes = st.one_of(
    st.sampled_from([1, 512, 513, 4096, 4096, 4096, MIB, MIB + 1, 2 * MIB, 3 * MIB, 10 * MIB, 12 * MIB, 64 * MIB]),
    st.integers(1, 3 * MIB),
    st.integers(1, 80 * MIB),
)
fragments = st.integers(1, 24).map(lambda k: k * 512)  # many blocks in one segment, in and out of order
streams = st.sampled_from([0, 0, 0, 7])
ops = st.one_of(
    st.tuples(st.just("malloc"), sizes, streams),
    st.tuples(st.just("malloc"), sizes, streams),
    st.tuples(st.just("free"), st.integers(0, 30)),
    st.tuples(st.just("free"), st.integers(0, 30)),
    st.tuples(st.just("record"), st.integers(0, 30), st.sampled_from([0, 7, 8, 9])),
    st.tuples(st.just("pass"), st.sampled_from([0, 7, 8, 9])),
    st.tuples(st.just("stop"), st.sampled_from([0, 7, 8, 9])),
    st.tuples(st.sampled_from(["empty_cache", "reset_peak", "reset_accumulated"])),
)
texts = st.sampled_from(
    [
        "",
        "",
        "max_split_size_mb:20",
        "max_split_size_mb:32,max_non_split_rounding_mb:24",
        "roundup_power2_divisions:4",
        "roundup_power2_divisions:[1:2,4:8,>:1]",
        "large_segment_size_mb:12",
        "large_segment_size_mb:32,max_split_size_mb:40,roundup_power2_divisions:8",
    ]
)


class SwitchedStreams:
    """Streams that have passed all their marks, or none."""

    def __init__(self) -> None:
        self.done: set[int] = set()

    def record(self, stream: int) -> object:
        return None

    def passed(self, stream: int, mark: object) -> bool:
        return stream in self.done

    def wait(self, stream: int, mark: object) -> None:
        return None


class Pair:
    """One program on the allocator and on the model."""

    def __init__(self, text: str, fraction: float | None, *, history: bool = False) -> None:
        self.clock = SwitchedStreams()
        parsed = AllocatorSettings.parse(text)
        self.gpu = CachingAllocator(0, TOTAL, context_bytes=CONTEXT, settings=parsed, clock=self.clock)
        if fraction is not None:
            self.gpu.set_memory_fraction(fraction)
        if history:
            self.gpu.record_history(frames=list)
        self.model = Model(0x7F00_0000_0000, TOTAL, CONTEXT, parsed, fraction)
        self.live: list[tuple[Block, ModelBlock]] = []

    def malloc(self, nbytes: int, stream: int) -> None:
        try:
            theirs = self.model.malloc(nbytes, stream, self.clock.done)
        except ModelOutOfMemory:
            with pytest.raises(DeviceOutOfMemory) as caught:
                self.gpu.malloc(nbytes, stream)
            assert caught.value.free == TOTAL - CONTEXT - self.model.reserved
            assert caught.value.segment == self.gpu.settings.segment_size(self.gpu.settings.round_size(nbytes))
            return
        ours = self.gpu.malloc(nbytes, stream)
        assert (ours.address, ours.size, ours.requested) == (theirs.address, theirs.size, nbytes)
        assert ours.stream == stream
        self.live.append((ours, theirs))

    def free(self, k: int) -> None:
        if self.live:
            ours, theirs = self.live.pop(k % len(self.live))
            self.gpu.free(ours)
            self.model.free(theirs)

    def record(self, k: int, stream: int) -> None:
        if self.live:
            ours, theirs = self.live[k % len(self.live)]
            self.gpu.record_stream(ours, stream)
            if stream != ours.stream:
                theirs.streams.add(stream)

    def step(self, op: tuple[Any, ...]) -> None:
        name, *args = op
        if name == "pass":
            self.clock.done.add(args[0])
        elif name == "stop":
            self.clock.done.discard(args[0])
        elif name in ("malloc", "free", "record"):
            getattr(self, name)(*args)
        else:
            getattr(self.gpu, name)()
            getattr(self.model, name)()

    def check(self) -> None:
        ours, theirs = self.gpu.stats(), self.model.stats()
        for key, value in theirs.items():
            assert ours[key] == value, key
        assert self.gpu.memory_info() == (TOTAL - CONTEXT - self.model.reserved, TOTAL)
        segments = sorted(self.model.segments, key=lambda s: s.blocks[0].address)
        states = {"free": "inactive", "used": "active_allocated", "pending": "active_pending_free"}
        assert [
            [(b["address"], b["size"], b["state"]) for b in s["blocks"]] for s in self.gpu.snapshot()["segments"]
        ] == [[(b.address, b.size, states[b.state]) for b in s.blocks] for s in segments]


@given(st.lists(ops, max_size=60), texts, st.sampled_from([None, None, 0.5, 1.0]), st.booleans())
@settings(max_examples=250, deadline=None)
def test_same_as_the_model(program: list[tuple[Any, ...]], text: str, fraction: float | None, history: bool) -> None:
    pair = Pair(text, fraction, history=history)
    for op in program:
        pair.step(op)
        pair.check()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=60))
# Both pools use all the room below their common peak, one after the other.
@example([(False, 5), (False, 0), (True, 5), (True, 0), (False, 1), (False, 5), (True, 4)])
@settings(max_examples=300, deadline=None)
def test_peaks_of_two_pools_and_of_both(steps: list[tuple[bool, int]]) -> None:
    """Only one comparison is made at each step, yet no peak is missed."""
    counters = DeviceCounters()
    levels = (counters.small.bytes, counters.large.bytes)
    now, peaks, both = [0, 0], [0, 0], 0
    for which, value in steps:
        change = value - now[which]
        now[which] = value
        levels[which].add(change) if change >= 0 else levels[which].subtract(-change)
        peaks[which], both = max(peaks[which], now[which]), max(both, sum(now))
        assert [level.now for level in levels] == now
        assert ([level.peak for level in levels], counters.peak("bytes")) == (peaks, both)


@given(
    st.lists(fragments, min_size=10, max_size=40),
    st.lists(
        st.one_of(st.tuples(st.just("malloc"), fragments), st.tuples(st.just("free"), st.integers(0, 99))), max_size=80
    ),
    st.sampled_from(["", "", "max_split_size_mb:20"]),
)
@settings(max_examples=150, deadline=None)
def test_same_as_the_model_in_a_fragmented_segment(start: list[int], program: list[tuple[str, int]], text: str) -> None:
    pair = Pair(text, None)
    for size in start:
        pair.malloc(size, 0)
    for name, value in program:
        if name == "malloc":
            pair.malloc(value, 0)
        else:
            pair.free(value)
    pair.check()


@given(st.lists(ops, max_size=60), st.booleans())
@settings(max_examples=100, deadline=None)
def test_looking_changes_nothing(program: list[tuple[Any, ...]], history: bool) -> None:
    """A freed block is put back when somebody looks; whether anybody does must make no difference."""
    pair = Pair("", None, history=history)
    for op in program:
        pair.step(op)
    pair.check()


@given(
    st.lists(ops, max_size=80),
    st.sampled_from(
        [
            "",
            "expandable_segments:True",
            "garbage_collection_threshold:0.4",
            "max_split_size_mb:25",
            "roundup_power2_divisions:2",
        ]
    ),
    st.lists(st.tuples(st.integers(0, 80), st.sampled_from(["", "expandable_segments:True"])), max_size=2),
)
@settings(max_examples=200, deadline=None)
def test_promises(program: list[tuple[Any, ...]], text: str, changes: list[tuple[int, str]]) -> None:
    clock = SwitchedStreams()
    gpu = CachingAllocator(0, TOTAL, context_bytes=CONTEXT, settings=AllocatorSettings.parse(text), clock=clock)
    gpu.set_memory_fraction(0.9)
    live: list[Block] = []
    for i, (name, *args) in enumerate(program):
        for at, changed in changes:
            if at == i:
                gpu.configure(AllocatorSettings.parse(changed))
        if name == "malloc":
            try:
                live.append(gpu.malloc(*args))
            except DeviceOutOfMemory as error:
                short = error.free < error.segment
                over_limit = gpu.reserved_bytes + error.segment > int(0.9 * TOTAL)
                justified = short or over_limit
                assert justified
        elif name == "free" and live:
            gpu.free(live.pop(args[0] % len(live)))
        elif name == "record" and live:
            gpu.record_stream(live[args[0] % len(live)], args[1])
        elif name == "pass":
            clock.done.add(args[0])
        elif name == "stop":
            clock.done.discard(args[0])
        elif name not in ("free", "record"):
            getattr(gpu, name)()
        keeps_its_promises(gpu, live)
    for block in live:
        gpu.free(block)
    gpu.empty_cache()
    stats: Any = gpu.stats()
    for quantity in (
        "allocation",
        "active",
        "requested_bytes",
        "active_bytes",
        "inactive_split",
        "inactive_split_bytes",
    ):
        assert stats[quantity]["all"]["current"] == 0, quantity
    assert gpu.reserved_bytes == 0
    assert gpu.memory_info() == (TOTAL - CONTEXT, TOTAL)
    assert gpu.snapshot()["segments"] == []


def keeps_its_promises(gpu: CachingAllocator, live: list[Block]) -> None:
    stats: Any = gpu.stats()
    for stat in [
        pools[pool] for pools in stats.values() if isinstance(pools, dict) and "all" in pools for pool in pools
    ]:
        assert 0 <= stat["current"] <= stat["peak"]
    for quantity in ("allocation", "allocated_bytes", "reserved_bytes", "requested_bytes", "active_bytes"):
        pools = stats[quantity]
        for key in ("current", "allocated", "freed"):
            assert pools["all"][key] == pools["small_pool"][key] + pools["large_pool"][key]
    assert stats["allocated_bytes"]["all"]["current"] == sum(block.size for block in live)
    assert stats["allocation"]["all"]["current"] == len(live)
    assert stats["reserved_bytes"]["all"]["current"] >= stats["active_bytes"]["all"]["current"]
    at = 0
    for block in sorted(live, key=lambda block: block.address):
        assert at <= block.address, "two live blocks overlap"
        at = block.address + block.size
    used = {}
    for segment in gpu.snapshot()["segments"]:
        address, state = segment["address"], ""
        for block in segment["blocks"]:
            assert block["address"] == address
            assert not (state == block["state"] == "inactive"), "free neighbours are one block"
            address, state = address + block["size"], block["state"]
            if state == "active_allocated":
                used[block["address"]] = block["size"]
        assert address == segment["address"] + segment["total_size"]
    assert used == {block.address: block.size for block in live}
    reserved = sum(segment["total_size"] for segment in gpu.snapshot()["segments"])
    assert reserved == gpu.reserved_bytes
