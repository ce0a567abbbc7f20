"""The protocol of a recording, as the timeline and the advice read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.happens_before import Race
    from fakegpu_lab.hardware.time.records import (
        Allocation,
        Collective,
        FirstUse,
        HostWork,
        Kernel,
        Total,
        Transfer,
        Wait,
    )


class HostTimes(Protocol):
    """What launches take the host, ns.

    Attributes
    ----------
    launch_ns, op_ns
        What a launch takes; what the longest op takes, without its launch.
    """

    @property
    def launch_ns(self) -> int: ...

    @property
    def op_ns(self) -> int: ...

    def began(self, record: Kernel | Transfer | Collective) -> tuple[int, int, int]:
        """When a launch's thread began with it: with Python, with PyTorch's C++, with the launching call.

        0 for Python: with the end of what the thread did before.
        """


class Recorded(Protocol):
    """A recording; `Recording` is one.

    Attributes
    ----------
    machine
        The simulated machine; None if the recording was opened from a file.
    simulated
        Whether its times are simulated, and not measured.
    cards
        The names of the devices, by their ordinals.
    origin
        What was recorded: the simulated machine's name, or a file's.
    host_times
        What launches took the host.
    began_ns, ended_ns
        When it began, and when the host had ended it and the devices had done all their work.
    """

    @property
    def machine(self) -> Machine | None: ...

    @property
    def simulated(self) -> bool: ...

    @property
    def cards(self) -> Mapping[int, str]: ...

    @property
    def origin(self) -> str: ...

    @property
    def host_times(self) -> HostTimes: ...

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


class Records(Protocol):
    """Where a recording has its records: a `Recorder`, or what was read from a file.

    Attributes
    ----------
    began_ns, last_ns
        When it began; when the last of the devices had done its work.
    peaks
        The most bytes that tensors held, by device.
    """

    began_ns: int
    peaks: dict[int, int]
    races: list[Race]
    first_uses: list[FirstUse]
    host_work: list[HostWork]
    dropped: Counter[str]

    @property
    def last_ns(self) -> int: ...

    @property
    def kernels(self) -> list[Kernel]: ...

    @property
    def transfers(self) -> list[Transfer]: ...

    @property
    def collectives(self) -> list[Collective]: ...

    @property
    def allocations(self) -> list[Allocation]: ...

    @property
    def held_before(self) -> list[Allocation]: ...

    @property
    def waits(self) -> list[Wait]: ...

    @property
    def totals(self) -> dict[tuple[int, str], Total]: ...

    @property
    def first_use_ns(self) -> int: ...


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
