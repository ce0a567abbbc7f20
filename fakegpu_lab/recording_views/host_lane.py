"""What each host thread did between launches: Python, PyTorch's dispatch, the launch itself; and what each launch took.

A recording has the time at which each kernel's op reached C++ (`Kernel.dispatched_ns`) and at which it was launched.
What is left between two launches, and is no wait and no `host_work`, is Python and ops without kernels.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.recording_views.recorded import device_records

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.records import Collective, Kernel, Transfer
    from fakegpu_lab.recording_views.recorded import Recorded


@dataclass(slots=True)
class HostLaunch:
    """A launch, and what its thread did since the launch, the wait or the work before it, ns.

    Attributes
    ----------
    record
        What was launched; the first, if one launch started several.
    count
        How many were launched at once.
    began
        Python from here on, PyTorch from `dispatched`, the launch from `launching` until `record.launched_ns`.
    """

    record: Kernel | Transfer | Collective
    began: int
    dispatched: int
    launching: int
    count: int = 1

    @property
    def host_ns(self) -> int:
        """All that the host took for it."""
        return self.record.launched_ns - self.began


def launches(recorded: Recorded, device: int | None = None) -> dict[str, list[HostLaunch]]:
    """The launches of each thread, on one device or on all, in their order."""
    times = recorded.host_times
    ends: dict[str, list[tuple[int, int]]] = defaultdict(list)  # what else the thread did: waits, work
    for other in (*recorded.waits, *recorded.host_work):
        ends[other.thread].append((other.start_ns, other.end_ns))
    found: dict[str, dict[int, HostLaunch]] = defaultdict(dict)
    for record in device_records(recorded):
        if not record.thread:
            continue  # read from a file that does not have its launch
        thread = found[record.thread]
        known = thread.get(record.launched_ns)
        if known is not None:
            known.count += 1
            continue
        thread[record.launched_ns] = HostLaunch(record, *times.began(record))
    return {
        thread: [one for one in _placed(list(several.values()), sorted(ends[thread]), recorded.began_ns)
                 if device in (None, one.record.device)]
        for thread, several in found.items()
    }  # fmt: skip


def _placed(several: list[HostLaunch], others: list[tuple[int, int]], began: int) -> list[HostLaunch]:
    """The launches in their order, each beginning where the thread's last action ended."""
    several.sort(key=lambda one: one.record.launched_ns)
    last, place = began, 0
    for one in several:
        while place < len(others) and others[place][0] <= one.launching:
            last = max(last, others[place][1])
            place += 1
        one.launching = max(one.launching, min(last, one.record.launched_ns))
        one.began = min(max(last, one.began), one.launching)
        one.dispatched = min(max(one.dispatched, one.began), one.launching)
        last = max(last, one.record.launched_ns)
    return several
