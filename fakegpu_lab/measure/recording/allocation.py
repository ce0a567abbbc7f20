"""The caching allocator under scripts of allocations: figures after each stage, statistics, snapshot, OOM texts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from .common import DEVICE, MIB, attempt, memory, refusal, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB = 1024
Stage = tuple[str, dict[str, Any]]


def _take(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device=DEVICE)


def _stage(name: str) -> Stage:
    stats = torch.cuda.memory_stats()
    kept = ("allocation", "segment", "inactive_split", "inactive_split_bytes", "requested_bytes", "active_bytes")
    more = {f"{k}.{p}": stats.get(f"{k}.{p}.current") for k in kept for p in ("small_pool", "large_pool")}
    return name, {**memory(), **more}


def _sizes() -> Iterator[Stage]:
    """One allocation at a time around each limit of the size rules."""
    edges = (1, 512, 513, MIB - 1, MIB, MIB + 1, 2 * MIB, 10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 20 * MIB, 33 * MIB + 7)
    for nbytes in edges:
        settle()
        block = _take(nbytes)
        yield _stage(f"{nbytes} bytes")
        del block


def _splits() -> Iterator[Stage]:
    """Blocks cut from one segment, freed and merged in an order that shows each rule."""
    settle()
    small = [_take(300 * KIB) for _ in range(7)]
    yield _stage("seven blocks of 300 KiB")
    del small[1], small[2]
    yield _stage("two freed, apart")
    del small[1]
    yield _stage("the one between freed: merged")
    again = _take(800 * KIB)
    yield _stage("800 KiB fit where they were")
    large = [_take(3 * MIB) for _ in range(7)]
    yield _stage("seven blocks of 3 MiB")
    del large[2:4]
    yield _stage("two neighbors freed")
    six = _take(6 * MIB)
    yield _stage("6 MiB in their place")
    del six, large, small, again
    yield _stage("all freed")
    torch.cuda.empty_cache()
    yield _stage("emptied")


def _fragmented() -> Iterator[Stage]:
    """Half of the memory is free, and none of it in one piece."""
    settle()
    blocks = [_take(5 * MIB) for _ in range(16)]
    yield _stage("sixteen blocks of 5 MiB")
    del blocks[::2]
    yield _stage("every other one freed")
    big = _take(12 * MIB)
    yield _stage("12 MiB find no place")
    torch.cuda.empty_cache()
    yield _stage("emptied: nothing to give back")
    del big, blocks
    torch.cuda.empty_cache()
    yield _stage("freed and emptied")


def _pools() -> Iterator[Stage]:
    """Streams have pools of their own; a block used on two streams waits for both."""
    settle()
    first = _take(4 * MIB)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        second = _take(4 * MIB)
    yield _stage("4 MiB on each of two streams")
    del first
    with torch.cuda.stream(side):
        third = _take(4 * MIB)
    yield _stage("freed on the one, taken on the other")
    third.record_stream(torch.cuda.current_stream())
    del second, third
    torch.cuda.synchronize()
    yield _stage("all freed")


def _expandable() -> Iterator[Stage]:
    """Expandable segments, where this torch lets them be switched on in a running process."""
    settle()
    switch = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or torch.cuda.memory._set_allocator_settings
    switch("expandable_segments:True")
    try:
        blocks = [_take(5 * MIB) for _ in range(8)]
        yield _stage("eight blocks of 5 MiB")
        del blocks[::2]
        yield _stage("every other one freed")
        big = _take(30 * MIB)
        yield _stage("30 MiB behind them")
        small = _take(KIB)
        yield _stage("1 KiB")
        del big, blocks, small
        torch.cuda.empty_cache()
        yield _stage("freed and emptied")
    finally:
        switch("expandable_segments:False")


def _script(stages: Callable[[], Iterator[Stage]]) -> Callable[[], dict[str, Any]]:
    return lambda: dict(stages())


def _snapshot() -> list[dict[str, Any]]:
    """The segments of a small scene, without their addresses."""
    settle()
    blocks = [_take(n) for n in (1000, 700 * KIB, 3 * MIB, 12 * MIB)]
    del blocks[1]
    keys = ("total_size", "allocated_size", "active_size", "requested_size", "segment_type", "stream", "is_expandable")
    return [
        {
            **{key: segment.get(key) for key in keys},
            "blocks": [[block["size"], block["requested_size"], block["state"]] for block in segment["blocks"]],
        }
        for segment in sorted(torch.cuda.memory_snapshot(), key=lambda s: s["total_size"])
    ]


def masked(text: str) -> str:
    """A sentence without its figures."""
    return re.sub(r"\d+(?:\.\d+)?", "#", text)


def _out_of_memory() -> dict[str, Any]:
    """What is said, and what is left, when the card or a fraction of it is full."""
    settle()
    counted = ("num_alloc_retries", "num_ooms", "num_sync_all_streams")
    before = torch.cuda.memory_stats()
    total = torch.cuda.get_device_properties(0).total_memory
    texts = {"1 PiB": refusal(lambda: _take(2**50)), "all of it": refusal(lambda: _take(total))}
    after = memory()
    settle()
    torch.cuda.set_per_process_memory_fraction(200 * MIB / total)
    try:
        held = _take(150 * MIB)
        texts["over the fraction"] = refusal(lambda: _take(60 * MIB))
        texts["small, over the fraction"] = refusal(lambda: [_take(MIB) for _ in range(60)])
        del held
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    stats = torch.cuda.memory_stats()
    counts = {name: stats.get(name, 0) - before.get(name, 0) for name in counted}
    settle()
    return {"texts": texts, "masked": {k: masked(v) for k, v in texts.items()}, "after": after, "counts": counts}


def record(quick: bool) -> dict[str, Any]:
    """Record all scripts; they take milliseconds."""
    found = {
        "sizes": attempt(_script(_sizes)),
        "splits": attempt(_script(_splits)),
        "fragmented": attempt(_script(_fragmented)),
        "streams": attempt(_script(_pools)),
        "snapshot": attempt(_snapshot),
        "out_of_memory": attempt(_out_of_memory),
        "stats_keys": attempt(lambda: sorted(torch.cuda.memory_stats())),
        "expandable": attempt(_script(_expandable)),  # last: it changes a setting
    }
    settle()
    return found
