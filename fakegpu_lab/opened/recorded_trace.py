"""`OpenedTrace`: a recording that was read from a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fakegpu_lab.formatting.units import duration
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.records import Record
from fakegpu_lab.opened.device_work import OpenedRecords
from fakegpu_lab.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fakegpu_lab.opened.device_work import HostTimes
    from fakegpu_lab.recording_views.allocations import Allocations

T = TypeVar("T", bound=Record)


class OpenedTrace(Recording):
    """What a real card's profiler recorded, as `open` read it from a file. It has the views of a `Trace`.

    Its kernels are named after the ops that launched them (`Kernel.name`); `Kernel.function` is the name of what ran on
    the card. A kernel that no op launched has the function's name. `Record.line` names the innermost function of the
    program that was running, if the profiler recorded stacks (``with_stack=True``): Python's profilers note a
    function's first line, not the line that called. Bytes and FLOPs of kernels are not in such files.

    Parameters
    ----------
    records, host_times, cards
        What was read.
    origin
        The file's name.
    ranks
        The ranks that were recorded; empty if the file does not say.
    python
        Whether Python's functions were recorded.
    simulated
        Whether it is in simulated time: a file of `Recording.to_chrome_trace`, or of torch.profiler here.
    note
        A sentence about what is uncertain; empty if nothing is.
    base_us
        The time, µs since 1970, from which the records count; None if it is unknown.
    """

    def __init__(
        self, records: OpenedRecords, host_times: HostTimes, cards: Mapping[int, str], origin: str, *,
        ranks: tuple[int, ...] = (), python: bool = True, simulated: bool = False, note: str = "",
        base_us: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(records)
        self._host_times, self._cards, self._origin = host_times, dict(cards), origin
        self.ranks, self.python, self.base_us = ranks, python, base_us
        self._simulated, self._note = simulated, note

    @property
    def machine(self) -> None:
        """None: the recording comes from a file."""
        return None

    @property
    def simulated(self) -> bool:
        """Whether its times are simulated, and no real card's."""
        return self._simulated

    @property
    def cards(self) -> dict[int, str]:
        """The names of the devices that were used, by their ordinals."""
        return self._cards

    @property
    def origin(self) -> str:
        """The file's name."""
        return self._origin

    @property
    def host_times(self) -> HostTimes:
        """What launches took the host, as recorded."""
        return self._host_times

    def part(self, start: float = 0.0, end: float | None = None) -> OpenedTrace:
        """A part of the recording, such as the steps without the half minute in which CUDA starts.

        It has what began in that time on a device; waits and work of the host are cut at its ends. It has no memory.

        Parameters
        ----------
        start, end
            Seconds since the recording began, as the axis of `figure` shows. No end: until the recording's.

        Raises
        ------
        FakeGpuError
            Nothing ran on a device in that time.
        """
        whole = self._records
        first = whole.began_ns + round(start * 1e9)
        last = whole.last_ns if end is None else min(whole.last_ns, whole.began_ns + round(end * 1e9))

        def within(records: list[T]) -> list[T]:
            return [one for one in records if first <= one.start_ns < last]

        def cut(records: list[T]) -> list[T]:
            overlapping = (one for one in records if one.end_ns > first and one.start_ns < last)
            return [
                replace(one, start_ns=max(one.start_ns, first), end_ns=min(one.end_ns, last)) for one in overlapping
            ]

        records = OpenedRecords(
            began_ns=first,
            kernels=within(whole.kernels),
            transfers=within(whole.transfers),
            collectives=within(whole.collectives),
            waits=cut(whole.waits),
            host_work=cut(whole.host_work),
            dropped=whole.dropped,
        )
        ran = [*records.kernels, *records.transfers, *records.collectives]
        if not ran:
            raise FakeGpuError(
                f"Nothing ran on a device from {start:g} s to {(last - whole.began_ns) / 1e9:g} s; {self._origin} "
                f"takes {self.elapsed:g} s, and figure() shows when kernels ran."
            )
        records.last_ns = max(last, *(one.end_ns for one in ran))
        return OpenedTrace(
            records, self._host_times, self._cards, self._origin, ranks=self.ranks, python=self.python,
            simulated=self._simulated, note=self._note, base_us=self.base_us,
        )  # fmt: skip

    def peak_memory(self, device: int = 0) -> int:
        """The most bytes that tensors held on a device while recording.

        Raises
        ------
        FakeGpuError
            Memory was not recorded, or there is no such device.
        """
        self._check(device)
        if device not in self._records.peaks:
            raise self._without_memory()
        return self._records.peaks[device]

    def has_memory(self, device: int) -> bool:
        """Whether allocations of a device were recorded."""
        return any(block.device == device for block in (*self.allocations, *self.held_before))

    def memory(self, device: int = 0) -> Allocations:
        """The allocations of a device as plain records, for pictures and tables of your own.

        Raises
        ------
        FakeGpuError
            Memory was not recorded, or there is no such device.
        """
        self._check(device)
        if not self.has_memory(device):
            raise self._without_memory()
        return super().memory(device)

    def _without_memory(self) -> FakeGpuError:
        if self._simulated and self._records.peaks:
            return FakeGpuError(
                f"{self._origin} has the curve of the memory, and no single allocation: look at the recording itself "
                "with memory_figure() and at_peak() before it is written to a file."
            )
        return FakeGpuError(
            f"{self._origin} says nothing about memory: record with profile_memory=True, or open a snapshot of "
            "torch.cuda.memory._dump_snapshot."
        )

    @property
    def _host_ended_ns(self) -> int:
        return self._records.last_ns

    def _lasted(self, ns: int) -> str:
        if self._simulated:
            return f"{duration(ns)} of simulated time, on {self._on()}"
        parts = [f"{duration(ns)} recorded on {self._on()}"]
        if not self.python:
            parts.append("without Python's functions: gaps between ops count as Python")
        if self._note:
            parts.append(self._note)
        return ", ".join(parts)

    def _on(self) -> str:
        """The cards and ranks in words."""
        names = list(dict.fromkeys(self._cards.values()))
        cards = " and ".join(f"{name}" if name else "a card whose name is not in the file" for name in names[:3])
        ranks = ""
        if len(self.ranks) == 1:
            ranks = f" (rank {self.ranks[0]})"
        elif self.ranks:
            ranks = f" (ranks {', '.join(map(str, self.ranks[:8]))}{', …' if len(self.ranks) > 8 else ''})"
        return f"{cards}{ranks}"

    def _has_devices(self) -> str:
        listed = ", ".join(str(index) for index in sorted(self._cards))
        return f"{self._origin} has {listed}" if len(self._cards) > 1 else f"{self._origin} has {listed} alone"
