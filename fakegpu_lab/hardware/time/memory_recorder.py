"""The memory's part of a recorder: which blocks were taken and freed, when, in which order, and for which tensors."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.records import Allocation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fakegpu_lab.hardware.time.clock import Host
    from fakegpu_lab.hardware.time.happens_before import Use, Uses
    from fakegpu_lab.hardware.time.records import Note


UNKNOWN_NOTE: Note = ("an op", (), None, 0, "", "", ())
"""The note of an op that began in an earlier recording, in another thread."""

_ALLOCATION = 10
"""The number of entries of an allocation in the flat list."""


def line_of(note: Note) -> str:
    """The user's line as ``file:number``."""
    return f"{note[2].co_filename}:{note[3]}" if note[2] is not None else ""


class MemoryRecorder:
    """Collects what the driver's storages report; `Recorder` says how, and has all the rest.

    Attributes
    ----------
    outer
        The recorder that was already active when this one started; everything is passed on to it.
    dropped
        The number of records of each kind beyond the limit.
    peaks
        The most bytes that tensors held, by device.
    orphans
        The last uses of freed memory, by address.
    categories
        Set by the driver when the recording ends: what blocks are for, by address.
    """

    def __init__(self, note: Callable[[Host], int], notes: Mapping[int, Note], began_ns: int, limit: int) -> None:
        self.note = note
        self.notes = notes
        self.began_ns = began_ns
        self.limit = limit
        self.outer: Any = None
        self.dropped: Counter[str] = Counter()
        self.peaks: dict[int, int] = {}
        self.orphans: dict[int, list[Use]] = {}
        self.categories: dict[int, str] = {}
        self._ends: dict[Host | None, int] = {None: began_ns}  # each host thread changes its own
        self._lock = threading.RLock()
        self._takings = itertools.count(1)
        self._raw_allocations: list[Any] = []
        self._freed_at: dict[int, tuple[int, int]] = {}
        self._allocations: list[Allocation] = []
        self._live: dict[int, tuple[int, int, int, int]] = {}
        self._tensors: dict[int, tuple[Any, Any]] = {}
        self._before: dict[int, Allocation] = {}
        self._held_before: list[Allocation] = []

    # ------------------------------------------------------------- reporting

    def begin_with(self, device: int, blocks: Iterable[tuple[int, int]]) -> None:
        """Note what a device's tensors hold as the recording begins: (address, bytes)."""
        for address, nbytes in blocks:
            block = Allocation(
                "before the recording", device, 0, self.began_ns, self.began_ns, address=address, nbytes=nbytes,
                block_bytes=nbytes,
            )  # fmt: skip
            self._before[address] = block  # no two devices share an address
            self._held_before.append(block)

    def allocated(self, host: Host, device: int, stream: int, address: int, nbytes: int, block: int, held: int) -> None:
        """Record an allocation of `nbytes` in a block of `block` bytes; tensors now hold `held` bytes of the device."""
        if self.outer is not None:
            self.outer.allocated(host, device, stream, address, nbytes, block, held)
        if held > self.peaks.get(device, 0):
            with self._lock:
                self.peaks[device] = max(held, self.peaks.get(device, 0))
        number = next(self._takings)
        if number > self.limit:
            self._drop("allocations")
            return
        note = host.note
        if note is None:
            note = self.note(host)
        host.took = True
        now = host.now
        self._live[address] = (number, stream, now, note)
        self._raw_allocations += (number, device, stream, host.name, now, address, nbytes, block, held, note)

    def made(self, address: int, shape: Any, dtype: Any) -> None:
        """Note the tensor that an op returned in this block; views made later change nothing."""
        taken = self._live.get(address)
        if taken is not None and taken[0] not in self._tensors:
            self._tensors[taken[0]] = shape, dtype

    def freed(self, host: Host, address: int, uses: Uses | None = None, category: str = "") -> None:
        """Record that a block was freed, after these uses by streams; what it was for, if that is known."""
        if self.outer is not None:
            self.outer.freed(host, address, uses, category)
        if uses is not None:
            self.orphans[address] = uses.last()
        taken = self._live.pop(address, None)
        if taken is not None:  # another thread's clock may be behind
            self._freed_at[taken[0]] = max(host.now, taken[2]), len(self._raw_allocations) // _ALLOCATION
            return
        block = self._before.pop(address, None)
        if block is not None:
            block.category = category
            block.freed, block.end_ns = True, max(host.now, self.began_ns)
            block.freed_after = len(self._raw_allocations) // _ALLOCATION

    def born(self, address: int) -> tuple[int, int, Note] | None:
        """Return an allocation's stream, time and op; None if it was made before the recording."""
        taken = self._live.get(address)
        if taken is None:
            return None
        _, stream, now, note = taken
        return stream, now, self._known(note)

    def finish(self, now: int) -> None:
        """End the recording: memory that is still allocated counts as allocated until now."""
        self._reached(None, now)
        self._live.clear()
        self._before.clear()

    def _known(self, note: int) -> Note:
        return self.notes.get(note, UNKNOWN_NOTE)

    def _reached(self, host: Host | None, end: int) -> None:
        self._ends[host] = max(end, self._ends.get(host, 0))

    def _drop(self, kind: str) -> None:
        with self._lock:
            self.dropped[kind] += 1

    # --------------------------------------------------------------- reading

    @property
    def last_ns(self) -> int:
        """The latest time at which something recorded ended."""
        return max(list(self._ends.values()))

    @property
    def allocations(self) -> list[Allocation]:
        """In order; those not freed end where the recording ends, so far."""
        with self._lock:
            raw = self._raw_allocations
            for i in range(len(self._allocations) * _ALLOCATION, len(raw), _ALLOCATION):
                number, device, stream, thread, now, address, nbytes, block, held, index = raw[i : i + _ALLOCATION]
                note = self._known(index)
                self._allocations.append(
                    Allocation(
                        note[0], device, stream, now, now, thread, line_of(note), note[4], note[5], address=address,
                        nbytes=nbytes, block_bytes=block, held=held, number=number, stack=note[6],
                    )
                )  # fmt: skip
            last, made = self.last_ns, len(self._allocations)
            for record in self._allocations:
                self._complete(record, last, made)
            return list(self._allocations)

    @property
    def held_before(self) -> list[Allocation]:
        """What tensors held as the recording began, as allocations that begin with it."""
        with self._lock:
            last, made = self.last_ns, len(self._raw_allocations) // _ALLOCATION
            for record in self._held_before:
                if not record.freed:
                    record.end_ns, record.freed_after = last, made
                    record.category = self.categories.get(record.address, "")
            return list(self._held_before)

    def _complete(self, record: Allocation, last: int, made: int) -> None:
        """Fill in what came later: the tensor, its end, what it is for."""
        tensor = self._tensors.get(record.number)
        if tensor is not None and record.shape is None:
            record.shape, record.dtype = tuple(tensor[0]), str(tensor[1]).removeprefix("torch.")
        freed = self._freed_at.get(record.number)
        record.freed = freed is not None
        if freed is not None:
            record.end_ns, record.freed_after = freed
        else:
            record.end_ns, record.freed_after = max(last, record.start_ns), made
            record.category = self.categories.get(record.address, "")
