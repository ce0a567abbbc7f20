"""The allocator's counters, and the nested dictionary that torch.cuda.memory_stats flattens.

The hot path counts only what cannot be derived: for each pool, all increases and all decreases. The current value is
their difference, ``all`` is small + large, ``active`` is what is allocated or pending. One comparison tracks the peaks:
see `Level`.
"""

from __future__ import annotations

from typing import TypeAlias

Stat: TypeAlias = dict[str, int]
StatArray: TypeAlias = dict[str, Stat]

QUANTITIES = (
    "blocks",
    "bytes",
    "requested",
    "split_blocks",
    "split_bytes",
    "segments",
    "reserved",
    "pending",
    "pending_bytes",
)

# By their names in torch (DeviceStats in c10/core/CachingDeviceAllocator.h).
_QUANTITY_BY_NAME = {
    "allocation": "blocks",
    "segment": "segments",
    "inactive_split": "split_blocks",
    "allocated_bytes": "bytes",
    "reserved_bytes": "reserved",
    "inactive_split_bytes": "split_bytes",
    "requested_bytes": "requested",
}


class Peak:
    """The highest value of something."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Level:
    """One quantity of one pool, such as the bytes allocated in the small pool.

    An increase can set a new peak of this pool and of both pools together. Instead of comparing with both each time,
    the hot path compares with `limit`, up to which there cannot be a new peak: it is at most `peak`, and the limits of
    the two pools add up to at most the peak of both. Above it, `new_high` looks closer and divides the remaining room
    between the two.

    Attributes
    ----------
    risen, fallen
        The totals of all increases and decreases; the current value is their difference. The hot path adds to them
        directly, and calls `new_high` when the difference exceeds `limit`.
    turned
        Decreases that were taken back at once, as when a block is freed and taken again: they belong to both totals.
    risen_base, fallen_base
        The totals when the accumulated statistics were last reset.
    other, together
        The same quantity of the other pool, and the peak of both.
    """

    __slots__ = ("fallen", "fallen_base", "limit", "other", "peak", "risen", "risen_base", "together", "turned")

    other: Level

    def __init__(self, together: Peak) -> None:
        self.risen = self.fallen = self.turned = self.risen_base = self.fallen_base = self.peak = self.limit = 0
        self.together = together

    @property
    def now(self) -> int:
        """The current value."""
        return self.risen - self.fallen

    def new_high(self) -> None:
        """Check for new peaks, and set both limits again."""
        other, together = self.other, self.together
        now, theirs = self.risen - self.fallen, other.risen - other.fallen
        both = now + theirs
        if now > self.peak:
            self.peak = now
        if both > together.value:
            together.value = both
        room = (together.value - both) // 2
        self.limit = min(self.peak, now + room)
        other.limit = min(other.peak, theirs + room)

    def add(self, amount: int) -> None:
        """increase_stat."""
        self.risen += amount
        if self.risen - self.fallen > self.limit:
            self.new_high()

    def subtract(self, amount: int) -> None:
        """decrease_stat."""
        self.fallen += amount

    def reset_peak(self) -> None:
        """reset_peak_stat."""
        self.peak = self.limit = self.now

    def reset_accumulated(self) -> None:
        """reset_accumulated_stat."""
        self.risen_base, self.fallen_base = self.risen + self.turned, self.fallen + self.turned

    def stat(self) -> Stat:
        """The entry in torch's dictionary."""
        risen, fallen = self.risen + self.turned, self.fallen + self.turned
        return _stat(self.now, self.peak, risen - self.risen_base, fallen - self.fallen_base)


class Counters:
    """The counters of the small or of the large pool.

    Attributes
    ----------
    blocks, bytes, requested
        Allocated (requested: until the block is free again, as in free_block).
    split_blocks, split_bytes
        Free, but part of a segment that is in use (inactive_split).
    segments, reserved
        Taken from the device.
    pending, pending_bytes
        Freed, but waiting for another stream.
    active_peak, active_bytes_peak
        The peaks of allocated and pending together; see `DeviceCounters.note_active_peak`.
    """

    __slots__ = (*QUANTITIES, "active_bytes_peak", "active_peak")

    blocks: Level
    bytes: Level
    requested: Level
    split_blocks: Level
    split_bytes: Level
    segments: Level
    reserved: Level
    pending: Level
    pending_bytes: Level

    def __init__(self) -> None:
        self.active_peak = 0
        self.active_bytes_peak = 0

    def active(self) -> tuple[int, int]:
        """How many blocks are active, and their bytes."""
        return self.blocks.now + self.pending.now, self.bytes.now + self.pending_bytes.now

    def levels(self) -> list[Level]:
        """All quantities."""
        return [getattr(self, name) for name in QUANTITIES]


class DeviceCounters:
    """All counters of one allocator."""

    __slots__ = (
        "_active_bytes_peak",
        "_active_peak",
        "_together",
        "large",
        "num_alloc_retries",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
        "num_ooms",
        "num_sync_all_streams",
        "oversize_allocations",
        "oversize_segments",
        "private",
        "sink",
        "small",
    )

    def __init__(self) -> None:
        self.small, self.large, self._together = _pool_counters()
        # Expandable segments count their split blocks here: nothing reads it.
        self.sink = _pool_counters()[0]
        self._active_peak = self._active_bytes_peak = 0
        self.private: dict[tuple[int, int], StatArray] = {}
        self.oversize_allocations = _stat()
        self.oversize_segments = _stat()
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_oom_rejections = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0

    def note_active_peak(self) -> None:
        """Track the peaks of what is active; called at each malloc while blocks are pending.

        At other times active and allocated are the same.
        """
        blocks = nbytes = 0
        for counters in (self.small, self.large):
            active, active_bytes = counters.active()
            counters.active_peak = max(counters.active_peak, active)
            counters.active_bytes_peak = max(counters.active_bytes_peak, active_bytes)
            blocks += active
            nbytes += active_bytes
        self._active_peak = max(self._active_peak, blocks)
        self._active_bytes_peak = max(self._active_bytes_peak, nbytes)

    def count_private(self, pool_id: tuple[int, int], *, small: bool, change: int) -> None:
        """Count bytes reserved or given back by a private pool (reserved_bytes_by_private_pools)."""
        stats = self.private.setdefault(pool_id, {key: _stat() for key in ("all", "small_pool", "large_pool")})
        for key in ("all", "small_pool" if small else "large_pool"):
            change_stat(stats[key], change)

    def reset_peak(self) -> None:
        """Set every peak to the current value (resetPeakStats)."""
        for level in (*self.small.levels(), *self.large.levels()):
            level.reset_peak()
        for name, peak in self._together.items():
            peak.value = getattr(self.small, name).now + getattr(self.large, name).now
        self._active_peak = self._active_bytes_peak = 0
        for counters in (self.small, self.large):
            counters.active_peak = counters.active_bytes_peak = 0
        self.note_active_peak()
        for stat in self._plain_stats():
            stat["peak"] = stat["current"]

    def reset_accumulated(self) -> None:
        """Set every total and counter to 0 (resetAccumulatedStats)."""
        for level in (*self.small.levels(), *self.large.levels()):
            level.reset_accumulated()
        for stat in self._plain_stats():
            stat["allocated"] = stat["freed"] = 0
        self.num_alloc_retries = self.num_ooms = self.num_oom_rejections = 0
        self.num_sync_all_streams = self.num_device_alloc = self.num_device_free = 0

    def _plain_stats(self) -> list[Stat]:
        private = [stat for stats in self.private.values() for stat in stats.values()]
        return [self.oversize_allocations, self.oversize_segments, *private]

    def peak(self, name: str) -> int:
        """The peak of both pools together."""
        return self._together[name].value

    def as_dict(self, max_split_size: int) -> dict[str, object]:
        """What torch._C._cuda_memoryStats returns (memoryStats in torch/csrc/cuda/Module.cpp)."""
        result: dict[str, object] = {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "num_oom_rejections": self.num_oom_rejections,
            "max_split_size": max_split_size,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
        }
        for name, quantity in _QUANTITY_BY_NAME.items():
            small, large = getattr(self.small, quantity).stat(), getattr(self.large, quantity).stat()
            result[name] = _array(small, large, self.peak(quantity))
        pools = (self.small, self.large)
        small, large = (_active(c.blocks, c.pending, c.active_peak) for c in pools)
        result["active"] = _array(small, large, max(self.peak("blocks"), self._active_peak))
        small, large = (_active(c.bytes, c.pending_bytes, c.active_bytes_peak) for c in pools)
        result["active_bytes"] = _array(small, large, max(self.peak("bytes"), self._active_bytes_peak))
        result["oversize_allocations"] = dict(self.oversize_allocations)
        result["oversize_segments"] = dict(self.oversize_segments)
        result["reserved_bytes_by_private_pools"] = {
            pool: {key: dict(stat) for key, stat in stats.items()} for pool, stats in self.private.items()
        }
        return result


def change_stat(stat: Stat, change: int) -> None:
    """increase_stat or decrease_stat, for a counter that is a dictionary."""
    stat["current"] += change
    stat["peak"] = max(stat["peak"], stat["current"])
    stat["allocated" if change > 0 else "freed"] += abs(change)


def _stat(current: int = 0, peak: int = 0, allocated: int = 0, freed: int = 0) -> Stat:
    return {"current": current, "peak": peak, "allocated": allocated, "freed": freed}


def _active(level: Level, pending: Level, peak: int) -> Stat:
    """Active blocks are allocated or pending; a freed block counts as freed once it is no longer pending."""
    stat = level.stat()
    freed = stat["freed"] - pending.now + pending.risen_base - pending.fallen_base
    return _stat(level.now + pending.now, max(level.peak, peak), stat["allocated"], freed)


def _array(small: Stat, large: Stat, peak: int) -> StatArray:
    both = {key: small[key] + large[key] for key in small} | {"peak": peak}
    return {"all": both, "small_pool": small, "large_pool": large}


def _pool_counters() -> tuple[Counters, Counters, dict[str, Peak]]:
    """The counters of a small and a large pool, and the peaks of both together."""
    small, large = Counters(), Counters()
    peaks = {name: Peak() for name in QUANTITIES}
    for name, peak in peaks.items():
        a, b = Level(peak), Level(peak)
        a.other, b.other = b, a
        setattr(small, name, a)
        setattr(large, name, b)
    return small, large, peaks
