"""The recorder: collects what the devices report during a recording, and turns it into `records`."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fakegpu_lab.hardware.time.happens_before import Race
from fakegpu_lab.hardware.time.memory_recorder import UNKNOWN_NOTE, MemoryRecorder, line_of
from fakegpu_lab.hardware.time.records import (
    LIMIT,
    Collective,
    FirstUse,
    HostWork,
    Kernel,
    Total,
    Transfer,
    Wait,
    sum_up,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fakegpu_lab.hardware.time.access import Access
    from fakegpu_lab.hardware.time.clock import Host, Stream
    from fakegpu_lab.hardware.time.happens_before import Use
    from fakegpu_lab.hardware.time.records import Note


__all__ = ["UNKNOWN_NOTE", "Recorder"]

_KERNEL = 12
"""The number of entries of a kernel in the flat list."""

RACES = 100
"""The most races kept: a program with more has the same one many times."""


class Recorder(MemoryRecorder):
    """Collects what a machine's devices report; `MemoryRecorder` has the memory's part.

    During a recording it is on the path of every op, so it only appends numbers to flat lists (objects would keep
    Python's garbage collector busy), which become records when they are read. The clock, the copies and the driver's
    storages report to it; `note` adds what only the driver knows (an op's name, the user's line, the module).

    Several host threads report at the same time, and a finalizer may report in the middle of another report. So each
    report takes its number from a counter and is appended whole, each in one step of C. What rarely changes has a lock.

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
    host_work, first_uses
        In order.
    sent
        Set by the driver; returns `Transfer.content` for what a host thread is sending.
    keeps
        Whether all that is in memory when it ends counts as used, for those who ask what is (the driver's `results`).
    races
        Uses of the same memory that nothing orders, once for each pair of lines.
    """

    def __init__(
        self, note: Callable[[Host], int], notes: Mapping[int, Note], began_ns: int = 0, limit: int = LIMIT
    ) -> None:
        super().__init__(note, notes, began_ns, limit)
        self.sent: Callable[[Host], int] = lambda host: 0
        self.outer: Recorder | None = None
        self.several = self.keeps = False
        self.races: list[Race] = []
        self._known_races: set[tuple[Any, ...]] = set()
        self._launches = itertools.count(1)
        self._raw_kernels: list[Any] = []
        self._kernels: list[Kernel] = []
        self._accesses: dict[int, Access] = {}
        self._transfers: list[Transfer] = []
        self._waits: list[Wait] = []
        self._collectives: list[Collective] = []
        self.host_work: list[HostWork] = []
        self.first_uses: list[FirstUse] = []
        self._beyond: dict[tuple[int, str], Total] = {}

    # ------------------------------------------------------------- reporting

    def kernel(
        self, host: Host, stream: Stream, before: int, start: int, share: float, flops: int, nbytes: int
    ) -> None:
        """Record a kernel, from `start` to the stream's end; the stream had been busy until `before`."""
        if self.outer is not None:
            self.outer.kernel(host, stream, before, start, share, flops, nbytes)
        number = next(self._launches)
        end = stream.end
        if number <= self.limit:
            note = host.note
            if note is None:
                note = self.note(host)
            self._raw_kernels += (stream, host.name, host.now, before, start, end, share, flops, nbytes, note, number,
                                  host.dispatched if host.op is not None else 0)  # fmt: skip
        else:
            self._beyond_limit("kernels", stream.device, self._known(self.note(host))[0], end - start, flops, nbytes)
        if end > self._ends.get(host, 0):
            self._ends[host] = end

    def accessed(self, host: Host, access: Access) -> None:
        """Add to the kernel that a host thread has just launched what it did to the hardware."""
        if self.outer is not None:
            self.outer.accessed(host, access)
        raw = self._raw_kernels
        if raw and raw[1 - _KERNEL] == host.name:
            self._accesses[len(raw) // _KERNEL - 1] = access

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
        number = next(self._launches)
        self._reached(host, end)
        memory = "Pinned" if pinned else "Pageable"
        if source is None:
            kind, name = "h2d", f"Memcpy HtoD ({memory} -> Device)"
        elif target is None:
            kind, name = "d2h", f"Memcpy DtoH (Device -> {memory})"
        else:
            kind, name = "p2p", "Memcpy PtoP (Device -> Device)"
        if len(self._transfers) >= self.limit:
            self._beyond_limit("transfers", stream.device, name, end - start, 0, nbytes)
            return
        note = self._known(self.note(host))
        self._transfers.append(
            Transfer(
                name, stream.device, stream.id, start, end, host.name, line_of(note), note[4], note[5], kind=kind,
                source=source, target=target, nbytes=nbytes, pinned=pinned, launched_ns=host.now,
                correlation=number, content=self.sent(host) if source is None else 0,
            )
        )  # fmt: skip

    def collective(self, record: Collective, note: int) -> None:
        """Record a device's part in a collective."""
        if self.outer is not None:
            self.outer.collective(record, note)
        number = next(self._launches)
        self._reached(None, record.end_ns)
        if len(self._collectives) >= self.limit:
            ns = record.end_ns - record.start_ns
            self._beyond_limit("collectives", record.device, record.name, ns, 0, record.nbytes)
            return
        known = self.notes.get(note)
        line, module = (line_of(known), known[4]) if known is not None else ("", "")
        self._collectives.append(replace(record, line=line, module=module, correlation=number))

    def wait(self, host: Host, device: int, until: int, why: str) -> None:
        """Record that a host thread will wait until a time; nothing is kept if that is past."""
        if self.outer is not None:
            self.outer.wait(host, device, until, why)
        self._reached(host, host.now)
        if until <= host.now:
            return
        if len(self._waits) >= self.limit:
            self._drop("waits")
            return
        note = self._known(self.note(host))
        self._waits.append(Wait(why, device, 0, host.now, until, host.name, line_of(note), note[4], note[5]))

    def worked(self, host: Host, start: int, name: str) -> None:
        """Record that a host thread was busy from `start` until now."""
        if self.outer is not None:
            self.outer.worked(host, start, name)
        self._reached(host, host.now)
        if len(self.host_work) >= self.limit:
            self._drop("host work")
            return
        note = self._known(self.note(host))
        self.host_work.append(HostWork(name, -1, 0, start, host.now, host.name, line_of(note), note[4], note[5]))

    def used_first(self, host: Host, name: str, ns: int) -> None:
        """Record that a host thread used something for the first time."""
        if self.outer is not None:
            self.outer.used_first(host, name, ns)
        if len(self.first_uses) >= self.limit:
            self._drop("first uses")
            return
        self.first_uses.append(FirstUse(name, ns, host.name, line_of(self._known(self.note(host)))))

    def race(self, kind: str, device: int, first: Use, second: Use) -> None:
        """Record a race between two uses of the same memory."""
        race = Race(
            kind, device,
            first.note[0], line_of(first.note), first.stream.id, second.note[0], line_of(second.note), second.stream.id,
        )  # fmt: skip
        key = (kind, device, race.first_line, race.second_line, race.first, race.second)
        with self._lock:
            if key not in self._known_races and len(self.races) < RACES:
                self._known_races.add(key)
                self.races.append(race)

    def _beyond_limit(self, kind: str, device: int, name: str, ns: int, flops: int, nbytes: int) -> None:
        with self._lock:
            self.dropped[kind] += 1
            self._beyond.setdefault((device, name), Total()).add(ns, flops, nbytes)

    # --------------------------------------------------------------- reading

    @property
    def first_use_ns(self) -> int:
        """What first uses took the host thread that spent most on them."""
        sums = Counter[str]()
        for use in self.first_uses:
            sums[use.thread] += use.ns
        return max(sums.values(), default=0)

    @property
    def kernels(self) -> list[Kernel]:
        """In the order of launch."""
        with self._lock:
            return self._make_kernels()

    def _make_kernels(self) -> list[Kernel]:
        raw = self._raw_kernels
        for place in range(len(self._kernels) * _KERNEL, len(raw), _KERNEL):
            entry = raw[place : place + _KERNEL]
            stream, thread, launched, before, start, end, share, flops, nbytes, index, number, dispatched = entry
            note = self._known(index)
            waited = "" if start <= launched else "the stream" if before >= start else "the card"
            self._kernels.append(
                Kernel(
                    note[0], stream.device, stream.id, start, end, thread, line_of(note), note[4], note[5],
                    launched_ns=launched,
                    flops=flops, nbytes=nbytes, share=share, shapes=tuple(tuple(shape) for shape in note[1]),
                    backward=note[5] in ("backward", "recompute"), correlation=number, waited_for=waited,
                    access=self._accesses.get(place // _KERNEL), dispatched_ns=dispatched,
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
    def waits(self) -> list[Wait]:
        """In order."""
        return self._waits

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Kernels, copies and collectives by (device, name): exact, without a limit."""
        with self._lock:
            totals = {key: replace(total) for key, total in self._beyond.items()}
        raw = self._raw_kernels
        for i in range(0, len(raw), _KERNEL):
            name = self._known(raw[i + 9])[0]
            totals.setdefault((raw[i].device, name), Total()).add(raw[i + 5] - raw[i + 4], raw[i + 7], raw[i + 8])
        sum_up(totals, (*self._transfers, *self._collectives))
        return totals
