"""The memory that a device's tensors hold, as its streams see it.

The host allocates and frees while the device is still busy with earlier work, often seconds of simulated time behind.
Here each allocation stands where the kernel that it was made for begins, and each free where the work ends that was
queued on the stream before it: from there on the stream may use the memory for something else. So memory and kernels
share an axis. This is the order in which PyTorch's caching allocator reuses blocks of one stream
(c10/cuda/CUDACachingAllocator.cpp: "Streams are implicitly assigned per-block").

On one stream the curve has the allocator's own sequence, and its peak is ``torch.cuda.max_memory_allocated``. With
several streams each has its own time, and what they hold at once may be more or less than the allocator counted when
the host queued it. Simplified: memory that another stream still uses (``record_stream``) ends with its own stream's
work.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.hardware.time.records import Kernel, Transfer
from fakegpu_lab.recording_views.recorded import device_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.hardware.time.records import Allocation, Collective
    from fakegpu_lab.recording_views.recorded import Recorded


class Change(NamedTuple):
    """Memory that is taken (`nbytes` above 0) or freed, at a time of its stream."""

    ns: int
    nbytes: int
    block: Allocation


class _StreamTimes:
    """What ran on one stream: where the stream is when it comes to something that the host did."""

    def __init__(self, records: Sequence[Kernel | Transfer | Collective], overhead: int) -> None:
        self.records = sorted(records, key=lambda record: (record.launched_ns, record.correlation))
        self.launched = [record.launched_ns for record in self.records]
        self.ends = list(accumulate((record.end_ns for record in self.records), max))
        self.overhead = overhead

    def own(self, block: Allocation) -> Kernel | Transfer | Collective | None:
        """What a block was allocated for: the op's kernel, launched just before or just after; or the copy into it."""
        here = bisect_right(self.launched, block.start_ns)
        for at in (here - 1, here):
            if not 0 <= at < len(self.records):
                continue
            record = self.records[at]
            if record.line != block.line:
                continue
            if isinstance(record, Transfer):
                if record.nbytes == block.nbytes and record.launched_ns - self.overhead <= block.start_ns:
                    return record
            elif record.name == block.name and abs(record.launched_ns - block.start_ns) <= self.overhead:
                return record
        return None

    def reached(self, host_ns: int) -> int:
        """When the stream has done what was queued by then."""
        here = bisect_right(self.launched, host_ns)
        return max(host_ns, self.ends[here - 1]) if here else host_ns


def changes(recorded: Recorded, device: int) -> list[Change]:
    """Every allocation and free of a device in the order in which the program made them, each at its stream's time."""
    streams: dict[int, list[Kernel | Transfer | Collective]] = {}
    for record in device_records(recorded):
        if record.device == device:
            streams.setdefault(record.stream, []).append(record)
    overhead = recorded.host_times.op_ns + recorded.host_times.launch_ns
    times = {stream: _StreamTimes(records, overhead) for stream, records in streams.items()}
    ordered: list[tuple[int, int, Allocation]] = []
    for block in (*recorded.held_before, *recorded.allocations):
        if block.device == device:
            if block.number:
                ordered.append((block.number, 0, block))
            if block.freed:
                ordered.append((block.freed_after, 1, block))
    ordered.sort(key=lambda entry: (entry[0], entry[1], entry[2].end_ns if entry[1] else 0))
    found: list[Change] = []
    last: dict[int, int] = {}
    done: dict[int, int] = {}  # when the work is done that a block was allocated for
    nothing = _StreamTimes((), overhead)
    for _, is_free, block in ordered:
        stream = times.get(block.stream, nothing)
        if is_free:
            when = max(stream.reached(block.end_ns), done.get(id(block), 0))
        else:
            own = stream.own(block)
            when = own.start_ns if own is not None else stream.reached(block.start_ns)
            done[id(block)] = own.end_ns if own is not None else when
        last[block.stream] = when = max(when, last.get(block.stream, recorded.began_ns))
        found.append(Change(when, -block.block_bytes if is_free else block.block_bytes, block))
    return found


def held_at_first(recorded: Recorded, device: int) -> int:
    """The bytes that tensors held when the recording began."""
    return sum(block.block_bytes for block in recorded.held_before if block.device == device)


def memory_curve(recorded: Recorded, device: int) -> list[tuple[int, int]]:
    """The bytes that tensors hold, as (ns, bytes) wherever they change; empty if they never do.

    Where several changes have the same time, the curve has the highest and the last value.
    """
    now = held_at_first(recorded, device)
    found = changes(recorded, device)
    if not found:
        return []
    curve = [(recorded.began_ns, now)]
    found.sort(key=lambda change: change.ns)  # of several streams
    for when, group in groupby(found, key=lambda change: change.ns):
        most = now
        for change in group:
            now += change.nbytes
            most = max(most, now)
        if most > max(now, curve[-1][1]):
            curve.append((when, most))
        if now != curve[-1][1]:
            curve.append((when, now))
    return curve
