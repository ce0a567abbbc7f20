"""The records of memory: what was allocated and freed while profile_memory=True recorded it."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import accumulate
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.hardware.time.records import Allocation

if TYPE_CHECKING:
    from fakegpu_lab.opened.device_work import OpenedRecords
    from fakegpu_lab.opened.threads import Around
    from fakegpu_lab.opened.trace_file import Memory, TraceFile


def add_memory(file: TraceFile, found: Around, records: OpenedRecords, base_us: float) -> None:
    """Add a file's allocations, what was held before them, and the peaks.

    A profiler's file does not say which stream a block belongs to: it is taken to be the device's busiest.
    """
    by_device: dict[int, list[int]] = defaultdict(list)
    for place, memory in enumerate(file.memories):
        by_device[memory.device].append(place)
    for device, places in by_device.items():
        places.sort(key=lambda place: file.memories[place].ts)
        streams = Counter(kernel.stream for kernel in records.kernels if kernel.device == device)
        stream = streams.most_common(1)[0][0] if streams else 0
        _of_device(device, stream, [(file.memories[p], p) for p in places], found, records, base_us)


def _of_device(
    device: int, stream: int, events: list[tuple[Memory, int]], found: Around, records: OpenedRecords, base_us: float
) -> None:
    began, ended = records.began_ns, records.last_ns
    first = events[0][0]
    if first.allocated >= 0:
        held = max(first.allocated - first.nbytes, 0)
    else:  # older profilers say only what changed: at least as much was held as was freed
        held = max(-min(accumulate(memory.nbytes for memory, _ in events)), 0)
    alive: dict[tuple[int, int], list[Allocation]] = defaultdict(list)
    number, peak, before = 0, held, held
    for memory, place in events:
        when = min(max(round((memory.ts - base_us) * 1000), began), ended)
        situation = found.memories[place]
        if memory.nbytes > 0:
            number += 1
            held += memory.nbytes
            block = Allocation(
                printable(situation.op) or "allocation", device, stream, when, ended, "", situation.line,
                situation.module, situation.phase, address=memory.address, nbytes=memory.nbytes,
                block_bytes=memory.nbytes, held=held, number=number, stack=situation.stack,
            )  # fmt: skip
            records.allocations.append(block)
            alive[_key(memory)].append(block)
        elif memory.nbytes < 0:
            held += memory.nbytes
            same = alive[_key(memory)]
            known = same.pop() if same else None
            if known is None:  # from before the recording
                nbytes = min(-memory.nbytes, before)
                known = Allocation(
                    "", device, stream, began, ended, address=memory.address, nbytes=nbytes, block_bytes=nbytes
                )
                before -= nbytes
                records.held_before.append(known)
            known.freed, known.end_ns, known.freed_after = True, when, number
        if memory.allocated >= 0:
            held = memory.allocated
        peak = max(peak, held)
    if before > 0:
        records.held_before.append(
            Allocation("", device, stream, began, ended, nbytes=before, block_bytes=before)
        )  # fmt: skip
    records.peaks[device] = peak


def _key(memory: Memory) -> tuple[int, int]:
    """What a block is known by: its address, or in older files its size alone."""
    return (memory.address, 0) if memory.address else (0, abs(memory.nbytes))
