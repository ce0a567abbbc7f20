"""The protocol of a recording, as the timeline and the advice read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.records import Allocation, Collective, HostWork, Kernel, Total, Transfer, Wait


class Recorded(Protocol):
    """A recording; `Trace` is one.

    Attributes
    ----------
    began_ns, ended_ns
        When it began, and when the host had ended it and the devices had done all their work.
    """

    machine: Machine

    @property
    def began_ns(self) -> int: ...

    @property
    def ended_ns(self) -> int: ...

    @property
    def kernels(self) -> Sequence[Kernel]: ...

    @property
    def transfers(self) -> Sequence[Transfer]: ...

    @property
    def collectives(self) -> Sequence[Collective]: ...

    @property
    def allocations(self) -> Sequence[Allocation]: ...

    @property
    def held_before(self) -> Sequence[Allocation]: ...

    @property
    def waits(self) -> Sequence[Wait]: ...

    @property
    def host_work(self) -> Sequence[HostWork]: ...

    @property
    def totals(self) -> Mapping[tuple[int, str], Total]: ...

    @property
    def dropped(self) -> Mapping[str, int]: ...


def device_records(recorded: Recorded) -> list[Kernel | Transfer | Collective]:
    """Everything that ran on a device, in the order of launch."""
    return sorted((*recorded.kernels, *recorded.transfers, *recorded.collectives), key=lambda r: r.correlation)


def note_of_dropped(recorded: Recorded) -> str:
    """A sentence about records that were dropped; empty if none were."""
    missing = [f"{number:,} {kind}" for kind, number in recorded.dropped.items() if number]
    if not missing:
        return ""
    several = f"{', '.join(missing[:-1])} and {missing[-1]}" if len(missing) > 1 else missing[0]
    return f"The recording was full: no details were kept of {several}. The totals and summary() include them."
