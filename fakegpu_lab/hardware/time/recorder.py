"""The recorder: collects what the devices report during a recording, and turns it into `records`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.happens_before import Race
from fakegpu_lab.hardware.time.records import LIMIT, Allocation, Collective, HostWork, Kernel, Total, Transfer, Wait

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.happens_before import Use, Uses
    from fakegpu_lab.hardware.time.records import Note


def _line(note: Note) -> str:
    """The user's line as ``file:number``."""
    return f"{note[2].co_filename}:{note[3]}" if note[2] is not None else ""


_KERNEL, _ALLOCATION = 10, 9
"""The number of entries of a kernel and of an allocation in the flat lists."""

RACES = 100
"""The most races kept: a program with more has the same one many times."""


class Recorder:
    """Collects what a machine's devices report.

    During a recording it is on the path of every op, so it only appends numbers to flat lists (objects would keep
    Python's garbage collector busy), which become records when they are read. The clock, the copies and the driver's
    storages report to it; `note` adds what only the driver knows (an op's name, the user's line, the module).

    Parameters
    ----------
    note
        Returns the index, among `notes`, of the note about the op that a host thread is running.
    began_ns
        The recording host's time at the start.

    Attributes
    ----------
    several
        Whether more than one stream is in use on a device, so that races are possible.
    outer
        The recorder that was already active when this one started; everything is passed on to it.
    host_work
        In order.
    dropped
        The number of records of each kind beyond the limit.
    sent
        Set by the driver; returns `Transfer.content` for what a host thread is sending.
    last_ns
        The latest end of anything recorded.
    peaks
        The most bytes that tensors held, by device.
    races
        Uses of the same memory that nothing orders, once for each pair of lines.
    orphans
        The last uses of freed memory, by address.
    """

    def __init__(
        self, note: Callable[[Host], int], notes: Sequence[Note], began_ns: int = 0, limit: int = LIMIT
    ) -> None:
        self.note = note
        self.sent: Callable[[Host], int] = lambda host: 0
        self.notes = notes
        self.began_ns = self.last_ns = began_ns
        self.limit = limit
        self.outer: Recorder | None = None
        self.several = False
        self.dropped: Counter[str] = Counter()
        self.peaks: dict[int, int] = {}
        self.races: list[Race] = []
        self.orphans: dict[int, list[Use]] = {}
        self._known_races: set[tuple[Any, ...]] = set()
        self.launches = 0
        self._raw_kernels: list[Any] = []
        self._kernels: list[Kernel] = []
        self._transfers: list[Transfer] = []
        self._raw_allocations: list[Any] = []
        self._freed_at: list[int] = []
        self._allocations: list[Allocation] = []
        self._waits: list[Wait] = []
        self._collectives: list[Collective] = []
        self.host_work: list[HostWork] = []
        self._beyond: dict[tuple[int, str], Total] = {}
        self._live: dict[int, int] = {}

    # ------------------------------------------------------------- reporting

    def kernel(
        self, host: Host, stream: Stream, before: int, start: int, share: float, flops: int, nbytes: int
    ) -> None:
        """Record a kernel, from `start` to the stream's end; the stream had been busy until `before`."""
        if self.outer is not None:
            self.outer.kernel(host, stream, before, start, share, flops, nbytes)
        self.launches = number = self.launches + 1
        end = stream.end
        if number <= self.limit:
            note = host.note
            if note is None:
                note = self.note(host)
            self._raw_kernels += (stream, host.name, host.now, before, start, end, share, flops, nbytes, note)
        else:
            self.dropped["kernels"] += 1
            self._beyond_limit(stream.device, self.notes[self.note(host)][0], end - start, flops, nbytes)
        if end > self.last_ns:
            self.last_ns = end

    def copy(
        self,
        host: Host,
        stream: Stream,
        source: int | None,
        target: int | None,
        nbytes: int,
        start: int,
        end: int,
        *,
        pinned: bool | None,
    ) -> None:
        """Record a copy; None stands for the host."""
        if self.outer is not None:
            self.outer.copy(host, stream, source, target, nbytes, start, end, pinned=pinned)
        self.launches += 1
        self.last_ns = max(self.last_ns, end)
        memory = "Pinned" if pinned else "Pageable"
        if source is None:
            kind, name = "h2d", f"Memcpy HtoD ({memory} -> Device)"
        elif target is None:
            kind, name = "d2h", f"Memcpy DtoH (Device -> {memory})"
        else:
            kind, name = "p2p", "Memcpy PtoP (Device -> Device)"
        if len(self._transfers) >= self.limit:
            self.dropped["transfers"] += 1
            self._beyond_limit(stream.device, name, end - start, 0, nbytes)
            return
        note = self.notes[self.note(host)]
        self._transfers.append(
            Transfer(
                name, stream.device, stream.id, start, end, host.name, _line(note), note[4], kind=kind,
                source=source, target=target, nbytes=nbytes, pinned=pinned, launched_ns=host.now,
                correlation=self.launches, content=self.sent(host) if source is None else 0,
            )
        )  # fmt: skip

    def collective(self, record: Collective, note: int) -> None:
        """Record a device's part in a collective."""
        if self.outer is not None:
            self.outer.collective(record, note)
        self.launches += 1
        self.last_ns = max(self.last_ns, record.end_ns)
        if len(self._collectives) >= self.limit:
            self.dropped["collectives"] += 1
            self._beyond_limit(record.device, record.name, record.end_ns - record.start_ns, 0, record.nbytes)
            return
        known = self.notes[note] if 0 <= note < len(self.notes) else None
        line, module = (_line(known), known[4]) if known is not None else ("", "")
        self._collectives.append(replace(record, line=line, module=module, correlation=self.launches))

    def wait(self, host: Host, device: int, until: int, why: str) -> None:
        """Record that a host thread will wait until a time; nothing is kept if that is past."""
        if self.outer is not None:
            self.outer.wait(host, device, until, why)
        self.last_ns = max(self.last_ns, host.now)
        if until <= host.now:
            return
        if len(self._waits) >= self.limit:
            self.dropped["waits"] += 1
            return
        note = self.notes[self.note(host)]
        self._waits.append(Wait(why, device, 0, host.now, until, host.name, _line(note), note[4]))

    def worked(self, host: Host, start: int, name: str) -> None:
        """Record that a host thread was busy from `start` until now."""
        if self.outer is not None:
            self.outer.worked(host, start, name)
        self.last_ns = max(self.last_ns, host.now)
        if len(self.host_work) >= self.limit:
            self.dropped["host work"] += 1
            return
        note = self.notes[self.note(host)]
        self.host_work.append(HostWork(name, -1, 0, start, host.now, host.name, _line(note), note[4]))

    def allocated(self, host: Host, device: int, stream: int, address: int, nbytes: int, block: int, held: int) -> None:
        """Record an allocation of `nbytes` in a block of `block` bytes; tensors now hold `held` bytes of the device."""
        if self.outer is not None:
            self.outer.allocated(host, device, stream, address, nbytes, block, held)
        if held > self.peaks.get(device, 0):
            self.peaks[device] = held
        number = len(self._freed_at)
        if number >= self.limit:
            self.dropped["allocations"] += 1
            return
        self._live[address] = number  # no two devices share an address
        self._freed_at.append(-1)
        note = host.note
        if note is None:
            note = self.note(host)
        self._raw_allocations += (device, stream, host.name, host.now, address, nbytes, block, held, note)

    def freed(self, host: Host, address: int, uses: Uses | None = None) -> None:
        """Record that a block was freed, after these uses by streams."""
        if self.outer is not None:
            self.outer.freed(host, address, uses)
        if uses is not None:
            self.orphans[address] = uses.last()
        place = self._live.pop(address, None)
        if place is not None:
            self._freed_at[place] = host.now

    def born(self, address: int) -> tuple[int, int, Note] | None:
        """Return an allocation's stream, time and op; None if it was made before the recording."""
        place = self._live.get(address)
        if place is None:
            return None
        i = place * _ALLOCATION
        _, stream, _, now, _, _, _, _, index = self._raw_allocations[i : i + _ALLOCATION]
        return stream, now, self.notes[index]

    def race(self, kind: str, device: int, first: Use, second: Use) -> None:
        """Record a race between two uses of the same memory."""
        race = Race(
            kind, device,
            first.note[0], _line(first.note), first.stream.id, second.note[0], _line(second.note), second.stream.id,
        )  # fmt: skip
        key = (kind, device, race.first_line, race.second_line, race.first, race.second)
        if key not in self._known_races and len(self.races) < RACES:
            self._known_races.add(key)
            self.races.append(race)

    def finish(self, now: int) -> None:
        """End the recording: memory that is still allocated counts as allocated until now."""
        self.last_ns = max(self.last_ns, now)
        self._live.clear()

    # --------------------------------------------------------------- reading

    @property
    def kernels(self) -> list[Kernel]:
        """In the order of launch."""
        raw, known = self._raw_kernels, len(self._kernels)
        others: list[Any] = [*self._transfers, *self._collectives] if len(raw) > known * _KERNEL else []
        copies = {other.correlation for other in others}
        number = self._kernels[-1].correlation if known else 0
        for place in range(known * _KERNEL, len(raw), _KERNEL):
            number += 1
            while number in copies:  # launches are numbered together
                number += 1
            stream, thread, launched, before, start, end, share, flops, nbytes, index = raw[place : place + _KERNEL]
            note = self.notes[index]
            waited = "" if start <= launched else "the stream" if before >= start else "the card"
            self._kernels.append(
                Kernel(
                    note[0], stream.device, stream.id, start, end, thread, _line(note), note[4], launched_ns=launched,
                    flops=flops, nbytes=nbytes, share=share, shapes=tuple(tuple(shape) for shape in note[1]),
                    backward=note[5], correlation=number, waited_for=waited,
                )
            )  # fmt: skip
        return self._kernels

    @property
    def transfers(self) -> list[Transfer]:
        """In the order of launch."""
        return self._transfers

    @property
    def collectives(self) -> list[Collective]:
        """In the order in which their last ranks were ready; then by rank."""
        return self._collectives

    @property
    def allocations(self) -> list[Allocation]:
        """In order; those not freed end where the recording ends, so far."""
        raw = self._raw_allocations
        for i in range(len(self._allocations) * _ALLOCATION, len(raw), _ALLOCATION):
            device, stream, thread, now, address, nbytes, block, held, index = raw[i : i + _ALLOCATION]
            note = self.notes[index]
            self._allocations.append(Allocation(
                note[0], device, stream, now, now, thread, _line(note), note[4], address=address, nbytes=nbytes,
                block_bytes=block, held=held,
            ))  # fmt: skip
        for record, freed_at in zip(self._allocations, self._freed_at, strict=True):
            record.freed = freed_at >= 0
            record.end_ns = freed_at if freed_at >= 0 else self.last_ns
        return self._allocations

    @property
    def waits(self) -> list[Wait]:
        """In order."""
        return self._waits

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Kernels, copies and collectives by (device, name): exact, without a limit."""
        totals = {key: replace(total) for key, total in self._beyond.items()}
        raw = self._raw_kernels
        for i in range(0, len(raw), _KERNEL):
            name = self.notes[raw[i + 9]][0]
            totals.setdefault((raw[i].device, name), Total()).add(raw[i + 5] - raw[i + 4], raw[i + 7], raw[i + 8])
        others: list[Any] = [*self._transfers, *self._collectives]
        for other in others:
            totals.setdefault((other.device, other.name), Total()).add(other.end_ns - other.start_ns, 0, other.nbytes)
        return totals

    def _beyond_limit(self, device: int, name: str, ns: int, flops: int, nbytes: int) -> None:
        self._beyond.setdefault((device, name), Total()).add(ns, flops, nbytes)
