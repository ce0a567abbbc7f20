"""Several ranks' recordings as one: rank n becomes device n, on one clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.device_work import HostTimes, OpenedRecords
from fakegpu_lab.opened.recorded_trace import OpenedTrace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.time.records import Collective, Record

_R = TypeVar("_R", bound="Record")


def joined(traces: Sequence[OpenedTrace]) -> OpenedTrace:
    """Join the recordings of several ranks.

    Clocks of one computer agree; those of several are synchronized to about a millisecond, at best. Recordings that
    have no moment in common begin at 0 each, and the result says so.

    Raises
    ------
    FakeGpuError
        Two recordings are of the same rank, or one is of several devices.
    """
    numbers = [trace.ranks[0] if trace.ranks else -1 for trace in traces]
    if -1 in numbers and len(set(numbers)) == 1:
        numbers = list(range(len(traces)))  # none says its rank: in the order of the files
    for number, count in Counter(numbers).items():
        if number < 0:
            names = ", ".join(trace.origin for trace, n in zip(traces, numbers, strict=True) if n < 0)
            raise FakeGpuError(f"{names} does not say its rank, so it cannot be opened with others: open it alone.")
        if count > 1:
            names = " and ".join([trace.origin for trace, n in zip(traces, numbers, strict=True) if n == number][:3])
            raise FakeGpuError(f"{names} are of the same rank {number}: give one file for each rank.")
    for trace in traces:
        if len(trace.cards) > 1:
            raise FakeGpuError(
                f"{trace.origin} is of {len(trace.cards)} devices, and several ranks can be opened together only if "
                "each used one: open it alone."
            )
    together = all(trace.base_us is not None for trace in traces) and _overlap(traces)
    first = min(trace.base_us or 0.0 for trace in traces)
    whole, times = OpenedRecords(), HostTimes()
    for number, trace in sorted(zip(numbers, traces, strict=True), key=lambda pair: pair[0]):
        _add(whole, times, trace, number, round(((trace.base_us or 0.0) - first) * 1000) if together else 0)
    _renumber(whole, times)
    if together:
        _wait_for_each_other(whole.collectives)
    longest = [trace.host_times for trace in traces]
    times.launch_ns = sorted(one.launch_ns for one in longest)[len(longest) // 2]
    times.op_ns = max(one.op_ns for one in longest)
    note = "" if together else "at different times, so each rank begins at 0 here"
    cards = {n: next(iter(trace.cards.values())) for n, trace in sorted(zip(numbers, traces, strict=True),
                                                                       key=lambda pair: pair[0])}  # fmt: skip
    return OpenedTrace(
        whole, times, cards, f"{traces[0].origin} and {len(traces) - 1} more", ranks=tuple(sorted(numbers)),
        python=all(trace.python for trace in traces), note=note,
    )  # fmt: skip


def _overlap(traces: Sequence[OpenedTrace]) -> bool:
    """Whether there is a moment in which all were recorded."""
    starts = [trace.base_us or 0.0 for trace in traces]
    ends = [start + (trace.ended_ns - trace.began_ns) / 1000 for start, trace in zip(starts, traces, strict=True)]
    return max(starts) < min(ends)


def _add(whole: OpenedRecords, times: HostTimes, trace: OpenedTrace, number: int, later: int) -> None:
    """Add one rank's records: `later` ns later, on device `number`."""
    launched: list[Any] = [*whole.kernels, *whole.transfers, *whole.collectives]
    move = max((record.correlation for record in launched), default=0)

    def moved(record: _R) -> _R:
        made = replace(record, start_ns=record.start_ns + later, end_ns=record.end_ns + later)
        made.device = number if record.device >= 0 else record.device
        made.thread = f"rank {number} {record.thread}" if record.thread else ""
        for name in ("launched_ns", "joined_ns"):
            if hasattr(made, name):
                setattr(made, name, getattr(made, name) + later)
        if getattr(made, "dispatched_ns", 0):
            made.dispatched_ns += later  # type: ignore[attr-defined]
        if hasattr(made, "correlation"):
            made.correlation += move
        if hasattr(made, "rank"):
            made.rank = number
        for name in ("source", "target"):
            if getattr(made, name, None) is not None:
                setattr(made, name, number)
        return made

    whole.kernels += map(moved, trace.kernels)
    whole.transfers += map(moved, trace.transfers)
    whole.collectives += map(moved, trace.collectives)
    whole.allocations += map(moved, trace.allocations)
    whole.held_before += map(moved, trace.held_before)
    whole.waits += map(moved, trace.waits)
    whole.host_work += map(moved, trace.host_work)
    for peak in trace._records.peaks.values():
        whole.peaks[number] = peak
    for correlation, began in trace.host_times.launches.items():
        python, dispatched, launching = began
        times.launches[correlation + move] = (
            python + later if python else later, dispatched + later, launching + later
        )  # fmt: skip
    whole.last_ns = max(whole.last_ns, trace.ended_ns + later)


def _renumber(whole: OpenedRecords, times: HostTimes) -> None:
    """Number what was launched in the order of all ranks' launches."""
    everything: list[Any] = sorted(
        (*whole.kernels, *whole.transfers, *whole.collectives), key=lambda record: (record.launched_ns, record.device)
    )
    launches = {}
    for number, record in enumerate(everything, 1):
        if record.correlation in times.launches:
            launches[number] = times.launches[record.correlation]
        record.correlation = number
    times.launches = launches
    for name in ("kernels", "transfers", "collectives"):
        getattr(whole, name).sort(key=lambda record: record.correlation)
    for name in ("waits", "host_work"):
        getattr(whole, name).sort(key=lambda record: record.start_ns)


def _wait_for_each_other(collectives: Sequence[Collective]) -> None:
    """Say how long each part of a collective waited for the last one, for groups in which this is certain.

    Older files do not number a group's operations, and counting them goes wrong if a recording began in between. So
    each operation of a group must have run at the same time on all its recorded ranks.
    """
    groups: dict[str, dict[tuple[int, str], list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for part in collectives:
        groups[part.group][part.number, part.name].append(part)
    for operations in groups.values():
        ranks = {part.rank for several in operations.values() for part in several}
        if not all(_at_once(several, ranks) for several in operations.values()):
            continue
        for several in operations.values():
            last = max(part.start_ns for part in several)
            for part in several:
                part.joined_ns = last


def _at_once(several: Sequence[Collective], ranks: set[int]) -> bool:
    """Whether all ranks have one part each, and all of these ran at one moment."""
    alike = len(several) == len(ranks) and {part.rank for part in several} == ranks
    return alike and max(part.start_ns for part in several) <= min(part.end_ns for part in several)
