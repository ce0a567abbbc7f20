"""Where a device's time went: every nanosecond of a recording belongs to exactly one slice, and each slice has a cause.

While a kernel runs, the time is its own; then come collectives, then copies. What is left are gaps, in which the device
did nothing. A gap belongs to what the host did until it launched the work that ends the gap.

A wait of the host costs nothing while the device works, and yet it is the cause of the gap behind it: had the host not
waited, it would have launched earlier, by as long as it waited. So gaps after a wait belong to it, up to its length.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from fakegpu_lab.hardware.time.records import LOADER_WAIT, Transfer
from fakegpu_lab.recording_views import host_lane, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Collective, HostWork, Kernel, Record, Wait
    from fakegpu_lab.recording_views.recorded import Recorded
    from fakegpu_lab.recording_views.spans import Span

    Actions = dict[str, list[tuple[int, int, str, Record]]]
    _T = TypeVar("_T")

KINDS = {
    "kernels": "kernels run",
    "collectives": "collectives, no kernel runs",
    "rank waits": "waits for other ranks",
    "copies": "copies, nothing else runs",
    "earlier": "work from before the recording",
    "python": "idle: the host runs Python",
    "dispatch": "idle: the host is in PyTorch's C++",
    "launch": "idle: the host launches",
    "host waits": "idle: after the host waited for the GPU",
    "host works": "idle: the host does other work",
    "loading": "idle: waits for the DataLoader",
    "queued": "idle: launched, but not begun",
    "nothing": "idle: after the last work",
}
"""The kinds of slices, with their names for people, in the order in which tables show them."""

LAUNCHING = ("python", "dispatch", "launch")
"""The kinds in which the device waits for the host to launch something."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a device's time.

    Attributes
    ----------
    start_ns, end_ns
        When.
    kind
        One of `KINDS`.
    record
        What ran; in a gap, what the host launched next, waited in or worked on; None if nothing came after it.
    """

    start_ns: int
    end_ns: int
    kind: str
    record: Record | None

    @property
    def ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns


def slices(recorded: Recorded, device: int, actions: Actions | None = None) -> list[Slice]:
    """A device's time from the start of a recording to its end, in order, without overlaps and without holes.

    `actions` are those of the recording's host threads, where they are known from another device.
    """
    began, ended = recorded.began_ns, recorded.ended_ns
    collectives = [part for part in recorded.collectives if part.device == device]
    copies = [copy for copy in recorded.transfers if device in (copy.device, copy.source, copy.target)]
    kernels = [kernel for kernel in recorded.kernels if kernel.device == device]
    found: list[Slice] = []
    covered: list[Span] = []
    for kind, claims in (
        ("kernels", [(k.start_ns, k.end_ns, k) for k in kernels]),
        ("collectives", [(max(c.joined_ns, c.start_ns), c.end_ns, c) for c in collectives]),
        ("rank waits", [(c.start_ns, c.joined_ns, c) for c in collectives]),
        ("copies", [(c.start_ns, c.end_ns, c) for c in copies]),
    ):  # fmt: skip
        mine = [
            Slice(start, end, kind, record)
            for start, end, record in _outside(_one_by_one(claims, began, ended), covered)
        ]
        covered = spans.merged([*covered, *((one.start_ns, one.end_ns) for one in mine)])
        found += mine
    records: list[Kernel | Transfer | Collective] = [*kernels, *copies, *collectives]
    found += _Gaps(recorded, records, actions_of(recorded) if actions is None else actions).explained(
        _holes(covered, began, ended)
    )
    found.sort(key=lambda one: one.start_ns)
    return found


def sums(several: Iterable[Slice]) -> dict[str, int]:
    """Nanoseconds by kind, for every kind."""
    total = dict.fromkeys(KINDS, 0)
    for one in several:
        total[one.kind] += one.ns
    return total


def _one_by_one(claims: Iterable[tuple[int, int, _T]], began: int, ended: int) -> list[tuple[int, int, _T]]:
    """Times of records that may overlap, made disjoint: the one that started first has the time."""
    found: list[tuple[int, int, _T]] = []
    until = began
    for start, end, record in sorted(claims, key=lambda claim: claim[:2]):
        first, last = max(start, until), min(end, ended)
        if last > first:
            found.append((first, last, record))
            until = last
    return found


def _outside(claims: Iterable[tuple[int, int, _T]], covered: Sequence[Span]) -> list[tuple[int, int, _T]]:
    """The parts of disjoint, sorted times that are not in `covered`, which is merged."""
    found: list[tuple[int, int, _T]] = []
    place = 0
    for start, end, record in claims:
        while place < len(covered) and covered[place][1] <= start:
            place += 1
        at, here = start, place
        while here < len(covered) and covered[here][0] < end:
            if covered[here][0] > at:
                found.append((at, covered[here][0], record))
            at = max(at, covered[here][1])
            here += 1
        if at < end:
            found.append((at, end, record))
    return found


def _holes(covered: Sequence[Span], began: int, ended: int) -> list[Span]:
    """What `covered` leaves of a time."""
    return [(start, end) for start, end, _ in _outside([(began, ended, None)], covered)]


class _Gaps:
    """Says what the host did in the gaps of a device."""

    def __init__(self, recorded: Recorded, records: list[Kernel | Transfer | Collective], actions: Actions) -> None:
        self.records = sorted(records, key=lambda record: (record.start_ns, record.correlation))
        self.starts = [record.start_ns for record in self.records]
        self.waits: dict[str, list[Wait]] = defaultdict(list)
        for wait in sorted(recorded.waits, key=lambda wait: wait.end_ns):
            self.waits[wait.thread].append(wait)
        self.wait_ends = {thread: [wait.end_ns for wait in several] for thread, several in self.waits.items()}
        self.actions = actions
        self.action_ends = {thread: [end for _, end, _, _ in several] for thread, several in self.actions.items()}
        self.lead: dict[str, tuple[Wait | None, int]] = {}  # by thread: its last wait, and what is left of its length

    def explained(self, gaps: Iterable[Span]) -> list[Slice]:
        """The gaps, in order, cut where their cause changes."""
        found: list[Slice] = []
        for start, end in gaps:
            place = bisect_left(self.starts, end)
            found += (
                self._before(self.records[place], start, end) if place < len(self.records) else self._last(start, end)
            )
        return found

    def _before(self, record: Kernel | Transfer | Collective, start: int, end: int) -> list[Slice]:
        """A gap that ends where `record` starts."""
        if record is self.records[0] and record.launched_ns < end and getattr(record, "waited_for", "") == "the stream":
            return [Slice(start, end, "earlier", record)]
        launched = min(max(record.launched_ns, start), end)
        found = self._after_wait(record, start, launched)
        at = found[-1].end_ns if found else start
        parts = self._host(record.thread, at, launched)
        if self._is_read(record):
            parts = [
                Slice(p.start_ns, p.end_ns, "host waits" if p.kind in LAUNCHING else p.kind, p.record) for p in parts
            ]
        found += parts
        if launched < end:
            found.append(Slice(launched, end, "queued", record))
        return found

    def _after_wait(self, record: Kernel | Transfer | Collective, start: int, end: int) -> list[Slice]:
        """The part of a gap that there would not be if the host had not waited before."""
        ends = self.wait_ends.get(record.thread, [])
        place = bisect_right(ends, record.launched_ns) - 1
        if place < 0:
            return []
        wait = self.waits[record.thread][place]
        known, left = self.lead.get(record.thread, (None, 0))
        if known is not wait:
            left = wait.end_ns - wait.start_ns
        took = min(left, end - start)
        self.lead[record.thread] = (wait, left - max(took, 0))
        return [Slice(start, start + took, "host waits", wait)] if took > 0 else []

    def _is_read(self, record: Kernel | Transfer | Collective) -> bool:
        """Whether the host waits for this copy to the host as soon as it has launched it, as ``item()`` does."""
        if not isinstance(record, Transfer) or record.kind != "d2h":
            return False
        ends = self.wait_ends.get(record.thread, [])
        place = bisect_right(ends, record.launched_ns)
        return place < len(ends) and self.waits[record.thread][place].start_ns <= record.launched_ns + 1_000

    def _host(self, thread: str, start: int, end: int) -> list[Slice]:
        """What a thread did from `start` to `end`; what is not known was Python."""
        found: list[Slice] = []
        at = start
        several = self.actions.get(thread, [])
        for place in range(bisect_right(self.action_ends.get(thread, []), start), len(several)):
            began, ended, kind, record = several[place]
            if began >= end or at >= end:
                break
            if began > at:
                found.append(Slice(at, began, "python", record))
                at = began
            if min(ended, end) > at:
                found.append(Slice(at, min(ended, end), kind, record))
                at = min(ended, end)
        if at < end:
            found.append(Slice(at, end, "python", None))
        return found

    def _last(self, start: int, end: int) -> list[Slice]:
        """The gap after a device's last work: what host threads worked on, or waited for, else nothing."""
        found: list[Slice] = []
        others = [
            (max(began, start), min(ended, end), (kind, record))
            for several in self.actions.values()
            for began, ended, kind, record in several
            if kind not in LAUNCHING and ended > start and began < end
        ]
        one_by_one = _one_by_one(others, start, end)
        found += [Slice(first, last, kind, record) for first, last, (kind, record) in one_by_one]
        rest = _holes([(first, last) for first, last, _ in one_by_one], start, end)
        return [*found, *(Slice(first, last, "nothing", None) for first, last in rest)]


def actions_of(recorded: Recorded) -> Actions:
    """What each host thread did, in order, without overlaps: waits, work, and the parts of its launches."""
    found: dict[str, list[tuple[int, int, tuple[str, Record]]]] = defaultdict(list)
    for thread, several in host_lane.launches(recorded).items():
        for one in several:
            found[thread] += [
                (one.began, one.dispatched, ("python", one.record)),
                (one.dispatched, one.launching, ("dispatch", one.record)),
                (one.launching, one.record.launched_ns, ("launch", one.record)),
            ]
    for wait in recorded.waits:
        found[wait.thread].append((wait.start_ns, wait.end_ns, ("host waits", wait)))
    for work in recorded.host_work:
        found[work.thread].append((work.start_ns, work.end_ns, (_kind_of_work(work), work)))
    first = min((start for several in found.values() for start, _, _ in several), default=0)
    return {
        thread: [(start, end, *what) for start, end, what in _one_by_one(several, min(first, 0), recorded.ended_ns)]
        for thread, several in found.items()
    }


def _kind_of_work(work: HostWork) -> str:
    return "loading" if work.name == LOADER_WAIT else "host works"
