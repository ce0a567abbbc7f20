"""Placing the kernels of several streams on one card, and reporting them to a recorder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.hardware.time.collective_load import CollectiveLoad
from fakegpu_lab.hardware.time.lanes import Lane, start_of

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.recorder import Recorder
    from fakegpu_lab.hardware.time.roofline import Roofline

_FULL = 1.0 + 1e-9
_LONG = 20
"""A kernel that is ready goes before work that starts later if that takes this many times as long, or more."""


class Timeline:
    """Places a device's kernels in time when `clock.launch` alone cannot; it is then every stream's `watch`.

    Kernels of different streams run side by side while the shares of the card that they fill add up to at most all of
    it; otherwise the one launched later waits until enough is free. CUDA's block scheduler has the same effect for
    kernels of many equal blocks. Blocks are scheduled in the order in which kernels become ready, not in that of their
    launch, so that the short copies around FSDP's all-gathers do not wait behind products that are queued for later:
    a kernel does not wait for one that becomes ready after it and takes 20 times as long. Not modelled: that the long
    one then starts later (by 5% of its time at most); the same order among kernels of similar length; kernels that
    slow each other by using the same memory; and blocks of a high-priority stream that go first. Kernels beside a
    collective take longer: see `CollectiveLoad`.

    Attributes
    ----------
    several
        Whether more than one stream is in use. It became so at host time `since`; the default stream had work until
        `until`.
    overlap
        Nanoseconds in which more than one kernel ran, counted once for each beyond the first.
    load
        What collectives take from the card; None until there was one.
    recorder
        Gets every kernel, copy and wait; None outside a recording.
    """

    __slots__ = ("_lanes", "load", "overlap", "recorder", "several", "since", "until")

    def __init__(self) -> None:
        self.several = False
        self.since = self.until = 0
        self._lanes: dict[int, list[Lane[float]]] = {}  # by stream: one, unless work was placed out of order
        self.overlap = 0
        self.load: CollectiveLoad | None = None
        self.recorder: Recorder | None = None

    def occupy(self, stream: Stream, start: int, end: int, share: float = 1.0) -> None:
        """Note work that something other than `kernel` has placed."""
        if end <= start:
            return
        lanes = self._lanes.setdefault(stream.id, [])
        lane = next((lane for lane in lanes if lane.takes(start)), None)
        if lane is None:
            lanes.append(lane := Lane())
        lane.work.append((start, end, share))

    def collective(self, stream: Stream, start: int, end: int) -> None:
        """Note a collective: other kernels run beside it."""
        if self.several:
            self._count_overlap(start, end)
            self.occupy(stream, start, end, 0.0)

    def expect(
        self, stream: Stream, now: int, ready: int, ns: int, blocks: int, traffic: float, roofline: Roofline
    ) -> None:
        """Note a collective that was called: see `CollectiveLoad.add`."""
        if not self.several:
            return
        if self.load is None:
            self.load = CollectiveLoad(roofline)
        self.load.add(stream, now, ready, ns, blocks, traffic)

    def kernel(self, host: Host, stream: Stream, ns: int, share: float, flops: int, nbytes: int) -> None:
        """Place a kernel launched at ``host.now``."""
        before = start = stream.end
        now = host.now
        if start < now:
            start = now
        if self.several:
            start = self._earliest_start(now, start, ns, share)
            if self.load is not None:
                ns = self.load.slowed(now, start, ns, share, nbytes)
            self._count_overlap(start, start + ns)
            self.occupy(stream, start, start + ns, share)
        stream.end = start + ns
        stream.busy += ns
        if self.recorder is not None:
            self.recorder.kernel(host, stream, before, start, share, flops, nbytes)

    def _earliest_start(self, now: int, ready: int, ns: int, share: float) -> int:
        """The earliest time, not before `ready`, from which a share of the card is free for `ns` nanoseconds."""
        lanes = [lane for lanes in self._lanes.values() for lane in lanes if lane.work]
        if lanes and min(lane.work[0] for lane in lanes)[1] <= now:
            for lane in lanes:
                lane.forget(now)
        running = [
            (start, end, held)
            for lane in lanes
            for start, end, held in lane.after(ready)
            if held and (start <= ready or held < share or end - start < _LONG * ns)
        ]
        if not running:
            return ready
        changes = [(max(start, ready), held) for start, _, held in running]
        changes += [(end, -held) for _, end, held in running]
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
        others = [work for lanes in self._lanes.values() for lane in lanes for work in lane.between(start, end)]
        others.sort(key=start_of)
        for other_start, other_end, _ in others:
            left, right = max(other_start, covered), min(other_end, end)
            if right > left:
                self.overlap += right - left
                covered = right
