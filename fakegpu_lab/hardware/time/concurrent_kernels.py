"""Kernels of several streams at work on one card, and telling a recorder what was placed where."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.recorder import Recorder

_FULL = 1.0 + 1e-9


class Timeline:
    """Places a device's kernels in time when `clock.launch` alone cannot: it is every stream's `watch` then.

    Kernels of different streams run side by side as long as the shares of the card that they fill add up to no more
    than all of it; else the one launched later waits until enough is free. That is what CUDA's block scheduler comes
    to for kernels of many equal blocks. Not modelled: that a kernel slows its neighbour by using the same memory, and
    that blocks of a high-priority stream go first.

    Attributes
    ----------
    several
        Whether more than one stream is in use: `since` that host time, when the first had work `until` that time.
    overlap
        Nanoseconds in which more than one kernel ran, counted once for each beyond the first.
    recorder
        Who is told of every kernel, copy and wait; None if nobody records.
    """

    __slots__ = ("_running", "overlap", "recorder", "several", "since", "until")

    def __init__(self) -> None:
        self.several = False
        self.since = self.until = 0
        self._running: list[tuple[int, int, float, int]] = []  # start, end, share, stream id; in order of start
        self.overlap = 0
        self.recorder: Recorder | None = None

    def occupy(self, stream: Stream, start: int, end: int, share: float = 1.0) -> None:
        """Note work that was placed without `kernel`."""
        if end > start:
            insort(self._running, (start, end, share, stream.id))

    def collective(self, stream: Stream, start: int, end: int) -> None:
        """Note a collective: other kernels run beside it. That it takes some of their multiprocessors is left out."""
        if self.several:
            self._count_overlap(start, end)
            self.occupy(stream, start, end, 0.0)

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Place a kernel that was launched at ``host.now``."""
        before = start = stream.end
        now = host.now
        if start < now:
            start = now
        if self.several:
            start = self._room(now, start, ns, share)
            self._count_overlap(start, start + ns)
            insort(self._running, (start, start + ns, share, stream.id))
        stream.end = start + ns
        stream.busy += ns
        if self.recorder is not None:
            self.recorder.kernel(host, stream, before, start, share, flops, nbytes)

    def _room(self, now: int, ready: int, ns: int, share: float) -> int:
        """The earliest time from `ready` at which a share of the card is free for so long."""
        running = self._running
        if running and running[0][1] <= now:
            self._running = running = [entry for entry in running if entry[1] > now]
        changes = [(max(start, ready), held) for start, end, held, _ in running if end > ready]
        if not changes:
            return ready
        changes += [(end, -held) for _, end, held, _ in running if end > ready]
        changes.sort()
        load, found = 0.0, ready
        for when, change in changes:
            if load + share <= _FULL and when - found >= ns:
                return found
            was_full = load + share > _FULL
            load += change
            if load + share > _FULL:
                continue
            if was_full:
                found = when
        return found

    def _count_overlap(self, start: int, end: int) -> None:
        covered = start
        for other_start, other_end, _, _ in self._running:
            if other_start >= end:
                break
            left, right = max(other_start, covered), min(other_end, end)
            if right > left:
                self.overlap += right - left
                covered = right
