"""Simulated time: launches, streams, events, copies, and kernels side by side."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakegpu_lab.hardware.catalogue.spec import parse_spec
from fakegpu_lab.hardware.machine import Machine
from fakegpu_lab.hardware.time.clock import CALL_NS, Host, Stream, await_mark, launch, record
from fakegpu_lab.hardware.time.concurrent_kernels import Timeline
from fakegpu_lab.hardware.time.ledger import Ledger
from fakegpu_lab.hardware.transfers import copies

if TYPE_CHECKING:
    from fakegpu_lab.hardware.device import Device

US = 1_000
MS = 1_000_000


def queue(overhead: int = 5 * US) -> Stream:
    return Stream(0, 0, Ledger(), overhead)


def device(spec: str = "a100") -> Device:
    return Machine(parse_spec(spec)).devices[0]


def test_short_kernels_wait_for_their_launch_and_long_ones_for_each_other() -> None:
    host, stream = Host(), queue()
    for _ in range(10):
        launch(host, stream, 2 * US)
    assert (host.now, stream.end, stream.busy) == (50 * US, 52 * US, 20 * US)
    host, stream = Host(), queue()
    for _ in range(10):
        launch(host, stream, 20 * US)
    assert (host.now, stream.end) == (50 * US, 205 * US)
    assert stream.ledger.kernels == 10


def test_waiting_never_turns_a_clock_back() -> None:
    host = Host(now=100)
    host.wait(50)
    assert host.now == 100
    host.wait(150)
    host.work(5)
    assert host.now == 155


def test_an_event_orders_two_streams() -> None:
    host, first, second = Host(), queue(), queue()
    launch(host, first, 1 * MS)
    mark = record(host, first)
    assert mark.time == first.end
    await_mark(host, second, mark)
    launch(host, second, 10)
    assert second.end == first.end + 10
    assert host.now == 2 * 5 * US + 2 * CALL_NS


def test_an_event_on_an_idle_stream_happens_when_it_is_recorded() -> None:
    host, stream = Host(now=7 * MS), queue()
    assert record(host, stream).time == 7 * MS + CALL_NS


# ------------------------------------------------- several streams on one card


def place(timeline: Timeline, ready: int, ns: int, share: float, stream: int = 0) -> tuple[int, int, float]:
    """Place a kernel of a stream of its own."""
    host, one = Host(now=ready), Stream(0, stream, Ledger(), 0)
    timeline.kernel(host, one, ns, share, 0, 0)
    return one.end - ns, one.end, share


def concurrent() -> Timeline:
    timeline = Timeline()
    timeline.several = True
    return timeline


def test_kernels_that_fill_the_card_run_one_after_the_other() -> None:
    timeline = concurrent()
    assert place(timeline, 0, 100, 1.0)[:2] == (0, 100)
    assert place(timeline, 10, 50, 1.0)[:2] == (100, 150)
    assert place(timeline, 10, 50, 0.1)[:2] == (150, 200)
    assert timeline.overlap == 0


def test_small_kernels_run_side_by_side() -> None:
    timeline = concurrent()
    assert place(timeline, 0, 100, 0.5)[:2] == (0, 100)
    assert place(timeline, 10, 50, 0.5)[:2] == (10, 60)
    assert place(timeline, 20, 50, 0.25)[:2] == (60, 110)
    assert timeline.overlap == 50 + 40


def test_a_short_kernel_that_is_ready_goes_before_a_long_one_that_becomes_ready_later() -> None:
    """Also if the long one was launched first, behind another of its stream; as FSDP's copies before an all-gather."""
    timeline = concurrent()
    host, compute = Host(), Stream(0, 0, Ledger(), 0)
    for ns in (1000, 1000):
        timeline.kernel(host, compute, ns, 1.0, 0, 0)
    assert place_at(timeline, 0, 10, 50, 1.0)[:2] == (1000, 1050)
    assert place_at(timeline, 0, 1050, 50, 1.0)[:2] == (2000, 2050)  # ready after it
    assert place_at(timeline, 0, 20, 60, 1.0)[:2] == (2050, 2110)  # not so short


kernels = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 40), st.sampled_from([0.1, 0.25, 0.5, 0.75, 1.0])), max_size=25
)


@given(kernels)
def test_only_short_kernels_fill_the_card_twice_and_nobody_waits_without_need(
    work: list[tuple[int, int, float]],
) -> None:
    timeline = concurrent()
    placed: list[tuple[int, int, float]] = []

    def load(at: int, ready: int, ns: int, least: float) -> float:
        """What a kernel meets: not what is 20 times as long, and starts after the kernel is ready."""
        return sum(
            share
            for start, end, share in placed
            if start <= at < end and (start <= ready or share < least or end - start < 20 * ns)
        )

    now = 0
    for wait, ns, share in work:
        now += wait // 10  # the host's clock only goes on
        ready = now + wait
        start, end, _ = place_at(timeline, now, ready, ns, share)
        expected = ready
        while any(load(t, ready, ns, share) + share > 1.0 + 1e-6 for t in range(expected, expected + ns)):
            expected += 1
        assert start == expected
        placed.append((start, end, share))
    busy = {t for start, end, _ in placed for t in range(start, end)}
    assert sum(end - start for start, end, _ in placed) - timeline.overlap == len(busy)


def place_at(timeline: Timeline, now: int, ready: int, ns: int, share: float) -> tuple[int, int, float]:
    host, stream = Host(now=now), Stream(0, 0, Ledger(), 0)
    stream.end = ready
    timeline.kernel(host, stream, ns, share, 0, 0)
    return stream.end - ns, stream.end, share


def test_placing_a_kernel_takes_no_longer_when_thousands_are_queued() -> None:
    def seconds(queued: int) -> float:
        timeline, host, first, second = concurrent(), Host(), Stream(0, 0, Ledger(), 0), Stream(0, 1, Ledger(), 0)
        for _ in range(queued):
            timeline.kernel(host, first, MS, 0.5, 0, 0)
        second.end = first.end
        began = time.process_time()
        for _ in range(200):
            timeline.kernel(host, first, MS, 0.5, 0, 0)
            timeline.kernel(host, second, MS, 0.5, 0, 0)
            timeline.collective(second, second.end, second.end + 1)
        return time.process_time() - began

    few, many = (min(seconds(queued) for _ in range(5)) for queued in (10, 20_000))
    assert many < 10 * few


# ---------------------------------------------------------------------- copies


def test_a_pinned_copy_overlaps_and_a_pageable_one_is_waited_for() -> None:
    card = device()
    host = Host()
    nbytes = 257 * 10**6  # 10 ms at 25.7 GB/s
    copies.to_device(host, card, nbytes, pinned=True, non_blocking=True)
    assert host.now == 5 * US
    assert card.default_stream.end == pytest.approx(10 * MS, rel=0.01)
    for options in ({}, {"pinned": True}, {"non_blocking": True}):
        card, host = device(), Host()
        copies.to_device(host, card, nbytes, **options)
        assert host.now >= card.default_stream.end
    card, host = device(), Host()
    copies.to_device(host, card, 1000, non_blocking=True)  # staged at once
    launched = host.now
    assert launched < 10 * US


def test_one_copy_engine_for_each_direction() -> None:
    card = device("a100")
    host = Host()
    ends = []
    for stream, there in ((1, True), (3, True), (5, False)):
        host.streams[card] = card.stream_of(stream)
        copy = copies.to_device if there else copies.to_host
        copy(host, card, 10**8, pinned=True, non_blocking=True)
        ends.append(card.streams[stream].end)
    one = ends[0] - 5 * US
    assert ends[1] == ends[0] + one  # behind the first
    assert ends[2] == pytest.approx(one + 15 * US, abs=10)  # beside both


def test_a_peer_copy_is_ordered_on_both_devices() -> None:
    machine = Machine(parse_spec("a100:2"))
    first, second = machine.devices
    host = Host()
    launch(host, host.streams[second], 5 * MS)
    copies.to_peer(host, first, second, 261 * 10**6)
    assert first.default_stream.end == second.default_stream.end
    assert first.default_stream.end == pytest.approx(6 * MS, rel=0.02)  # NVLink: 261 GB/s, after second's kernel
    assert host.now < MS


@pytest.mark.parametrize(
    ("spec", "gigabytes"),
    [("a100:2", 261), ("rtx4090:2", 25.8), ("t4:2", 12.9), ("dgx-a100", 261), ("dgx-h100 x2", 391)],
)
def test_the_link_between_two_devices(spec: str, gigabytes: float) -> None:
    links = Machine(parse_spec(spec)).links
    assert links.peer(0, 1)[0] / 1e9 == pytest.approx(gigabytes, rel=0.02)
    assert links.peer(0, 1) == links.peer(1, 0)


def test_between_nodes_a_copy_goes_over_the_network() -> None:
    links = Machine(parse_spec("dgx-h100 x2")).links
    assert links.peer(0, 8)[0] == 50e9


# --------------------------------------------------------------------- devices


def test_streams_of_a_device() -> None:
    from fakegpu_lab.hardware.time.clock import here

    card = device()
    host = here.host
    host.now = 0
    assert host.streams[card] is card.default_stream
    launch(host, card.default_stream, MS)
    assert card.default_stream.watch is None  # nothing to watch with one stream
    side = card.stream_of(1, -1)
    assert card.stream_of(1) is side
    assert side.watch is card.default_stream.watch is card.timeline
    launch(host, side, MS, 0.5)
    assert card.end == max(side.end, card.default_stream.end)
    assert side.end == card.default_stream.end + MS  # the default stream's kernel fills the card
    assert card.busy == 2 * MS


def test_cuda_free_waits_for_the_device() -> None:
    from fakegpu_lab.hardware.time.clock import here

    card = device()
    here.host.now = 0
    block = card.allocator.malloc(100)
    launch(here.host, card.default_stream, 5 * MS)
    card.allocator.free(block)
    assert here.host.now < MS
    card.allocator.empty_cache()
    assert here.host.now == card.default_stream.end


def test_the_allocator_asks_the_streams() -> None:
    from fakegpu_lab.hardware.time.clock import here

    card = device()
    here.host.now = 0
    side = card.stream_of(1)
    block: Any = card.allocator.malloc(1000)
    card.allocator.record_stream(block, 1)
    launch(here.host, side, 5 * MS, 0.1)
    card.allocator.free(block)
    assert card.allocator.malloc(1000).address != block.address
    here.host.wait(side.end + CALL_NS)
    address = block.address
    assert card.allocator.malloc(1000).address == address
