"""Placing the kernels of several streams on one card, and reporting them to a recorder."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.recorder import Recorder

_FULL = 1.0 + 1e-9


class Timeline:
    """Places a device's kernels in time when `clock.launch` alone cannot; it is then every stream's `watch`.

    Kernels of different streams run side by side while the shares of the card that they fill add up to at most all of
    it; otherwise the one launched later waits until enough is free. CUDA's block scheduler has the same effect for
    kernels of many equal blocks. Not modelled: kernels that slow each other by using the same memory, and blocks of a
    high-priority stream that go first.

    Attributes
    ----------
    several
        Whether more than one stream is in use. It became so at host time `since`; the default stream had work until
        `until`.
    overlap
        Nanoseconds in which more than one kernel ran, counted once for each beyond the first.
    recorder
        Gets every kernel, copy and wait; None outside a recording.
    """

    __slots__ = ("_running", "overlap", "recorder", "several", "since", "until")

    def __init__(self) -> None:
        self.several = False
        self.since = self.until = 0
        self._running: list[tuple[int, int, float, int]] = []  # start, end, share, stream id; in order of start
        self.overlap = 0
        self.recorder: Recorder | None = None

    def occupy(self, stream: Stream, start: int, end: int, share: float = 1.0) -> None:
        """Note work that something other than `kernel` has placed."""
        if end > start:
            insort(self._running, (start, end, share, stream.id))

    def collective(self, stream: Stream, start: int, end: int) -> None:
        """Note a collective: other kernels run beside it. The multiprocessors that it uses are not modelled."""
        if self.several:
            self._count_overlap(start, end)
            self.occupy(stream, start, end, 0.0)

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Place a kernel launched at ``host.now``."""
        before = start = stream.end
        now = host.now
        if start < now:
            start = now
        if self.several:
            start = self._earliest_start(now, start, ns, share)
            self._count_overlap(start, start + ns)
            insort(self._running, (start, start + ns, share, stream.id))
        stream.end = start + ns
        stream.busy += ns
        if self.recorder is not None:
            self.recorder.kernel(host, stream, before, start, share, flops, nbytes)

    def _earliest_start(self, now: int, ready: int, ns: int, share: float) -> int:
        """The earliest time, not before `ready`, from which a share of the card is free for `ns` nanoseconds."""
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
