"""A second allocator, as slow and obvious as can be, to compare the real one with.

It keeps segments as lists of blocks and nothing else: every statistic is worked out anew after every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fakegpu_lab.hardware.allocator.settings import AllocatorSettings

MIB = 2**20
QUANTITIES = (
    "allocation",
    "active",
    "inactive_split",
    "segment",
    "allocated_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "reserved_bytes",
    "requested_bytes",
)


@dataclass
class ModelBlock:
    address: int
    size: int
    requested: int = 0
    state: str = "free"  # or "used", "pending"
    streams: set[int] = field(default_factory=set)


@dataclass
class ModelSegment:
    stream: int
    small: bool
    blocks: list[ModelBlock]

    @property
    def size(self) -> int:
        return sum(block.size for block in self.blocks)

    @property
    def whole(self) -> bool:
        return len(self.blocks) == 1 and self.blocks[0].state == "free"


class ModelOutOfMemory(Exception):
    pass


class Model:
    """The rules of the reference, one by one; no expandable segments, no garbage collection."""

    def __init__(self, base: int, total: int, context: int, settings: AllocatorSettings, fraction: float | None):
        self.base, self.total, self.context, self.settings = base, total, context, settings
        self.allowed = None if fraction is None else int(fraction * total)
        self.segments: list[ModelSegment] = []
        self.waiting: list[tuple[int, ModelBlock]] = []  # (stream, block) in the order of their events
        self.counts = dict.fromkeys(
            ("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"), 0
        )
        keys = [(q, pool) for q in QUANTITIES for pool in ("all", "small_pool", "large_pool")]
        self.stat = {key: {"current": 0, "peak": 0, "allocated": 0, "freed": 0} for key in keys}

    # ------------------------------------------------------------------ what the program does

    def malloc(self, nbytes: int, stream: int, passed: set[int]) -> ModelBlock:
        self.process_events(passed)
        size = self.settings.round_size(nbytes)
        small = size <= MIB
        found = self.best_fit(size, stream, small)
        if found is None:
            want = self.settings.segment_size(size)
            segment = self.device_malloc(want, stream, small)
            if segment is None and self.release_oversize(size, stream, small):
                segment = self.device_malloc(want, stream, small)
            if segment is None:
                self.release_cached()
                self.counts["num_alloc_retries"] += 1
                segment = self.device_malloc(want, stream, small)
            if segment is None:
                self.counts["num_ooms"] += 1
                raise ModelOutOfMemory
            found = (segment, segment.blocks[0])
        segment, block = found
        rest = block.size - size
        if (rest >= 512) if small else (rest > MIB and size < self.settings.max_split_bytes):
            at = segment.blocks.index(block)
            segment.blocks.insert(at + 1, ModelBlock(block.address + size, rest))
            block.size = size
        block.state, block.requested = "used", nbytes
        self.observe()
        return block

    def free(self, block: ModelBlock) -> None:
        if block.streams:
            block.state = "pending"
            self.waiting += [(stream, block) for stream in sorted(block.streams)]
        else:
            self.put_back(block)
        self.observe()

    def empty_cache(self) -> None:
        self.release_cached()

    def reset_peak(self) -> None:
        for stat in self.stat.values():
            stat["peak"] = stat["current"]

    def reset_accumulated(self) -> None:
        for stat in self.stat.values():
            stat["allocated"] = stat["freed"] = 0
        self.counts = dict.fromkeys(self.counts, 0)

    # ------------------------------------------------------------------ the rules

    @property
    def reserved(self) -> int:
        return sum(segment.size for segment in self.segments)

    def best_fit(self, size: int, stream: int, small: bool) -> tuple[ModelSegment, ModelBlock] | None:
        fits = [
            (block.size, block.address, segment, block)
            for segment in self.segments
            if segment.stream == stream and segment.small == small
            for block in segment.blocks
            if block.state == "free" and block.size >= size
        ]
        if not fits:
            return None
        have, _, segment, block = min(fits, key=lambda fit: fit[:2])
        limit = self.settings.max_split_bytes
        if size < limit <= have:
            return None
        if size >= limit and have >= size + self.settings.max_non_split_rounding_bytes:
            return None
        return segment, block

    def device_malloc(self, nbytes: int, stream: int, small: bool) -> ModelSegment | None:
        if self.allowed is not None and self.reserved + nbytes > self.allowed:
            return None
        if nbytes > self.total - self.context - self.reserved:
            return None
        address = self.base
        for segment in sorted(self.segments, key=lambda s: s.blocks[0].address):
            if segment.blocks[0].address - address >= nbytes:
                break
            address = segment.blocks[0].address + segment.size
        made = ModelSegment(stream, small, [ModelBlock(address, nbytes)])
        self.segments.append(made)
        self.counts["num_device_alloc"] += 1
        self.observe()
        return made

    def release(self, segment: ModelSegment) -> None:
        self.segments.remove(segment)
        self.counts["num_device_free"] += 1
        self.observe()

    def release_oversize(self, size: int, stream: int, small: bool) -> bool:
        limit = self.settings.max_split_bytes
        if limit == AllocatorSettings().max_split_bytes:
            return False
        want = max(size, limit)
        mine = [s for s in self.segments if s.stream == stream and s.small == small and s.whole and s.size >= limit]
        mine.sort(key=lambda s: (s.size, s.blocks[0].address))
        for segment in mine:
            if segment.size >= want:
                self.release(segment)
                return True
        released = 0
        for segment in reversed(mine):
            if released >= want:
                break
            released += segment.size
            self.release(segment)
        return released >= want

    def release_cached(self) -> None:
        self.counts["num_sync_all_streams"] += 1
        self.process_events({stream for stream, _ in self.waiting})
        for segment in [s for s in self.segments if s.whole]:
            self.release(segment)

    def process_events(self, passed: set[int]) -> None:
        """A block is free when all its streams have passed; here a stream has passed all its marks or
        none."""
        queues = dict.fromkeys(stream for stream, _ in self.waiting)  # one after the other
        for event in [event for stream in queues if stream in passed for event in self.waiting if event[0] == stream]:
            self.waiting = [other for other in self.waiting if other is not event]
            block = event[1]
            if not any(other is block for _, other in self.waiting):
                self.put_back(block)
                self.observe()

    def put_back(self, block: ModelBlock) -> None:
        block.state, block.streams = "free", set()
        segment = next(s for s in self.segments if any(b is block for b in s.blocks))
        merged: list[ModelBlock] = []
        for each in segment.blocks:
            if merged and merged[-1].state == each.state == "free":
                merged[-1].size += each.size
            else:
                merged.append(each)
        segment.blocks = merged

    # ------------------------------------------------------------------ the statistics

    def now(self, small: bool) -> dict[str, int]:
        segments = [segment for segment in self.segments if segment.small == small]
        blocks = [block for segment in segments for block in segment.blocks]
        used = [block for block in blocks if block.state == "used"]
        active = [block for block in blocks if block.state != "free"]
        split = [b for s in segments if len(s.blocks) > 1 for b in s.blocks if b.state == "free"]
        return {
            "allocation": len(used),
            "active": len(active),
            "inactive_split": len(split),
            "segment": len(segments),
            "allocated_bytes": sum(block.size for block in used),
            "active_bytes": sum(block.size for block in active),
            "inactive_split_bytes": sum(block.size for block in split),
            "reserved_bytes": sum(segment.size for segment in segments),
            "requested_bytes": sum(block.requested for block in active),
        }

    def observe(self) -> None:
        small, large = self.now(small=True), self.now(small=False)
        for quantity in QUANTITIES:
            values = {"small_pool": small[quantity], "large_pool": large[quantity]}
            values["all"] = sum(values.values())
            for pool, value in values.items():
                stat = self.stat[quantity, pool]
                change = value - stat["current"]
                stat["current"] = value
                stat["peak"] = max(stat["peak"], value)
                stat["allocated" if change > 0 else "freed"] += abs(change)

    def stats(self) -> dict[str, object]:
        nested: dict[str, dict[str, dict[str, int]]] = {}
        for (quantity, pool), stat in self.stat.items():
            nested.setdefault(quantity, {})[pool] = dict(stat)
        return {**nested, **self.counts}
