"""`record()`: a recording of what happened on the simulated GPUs, to look at or to assert on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab import session
from fakegpu_lab.formatting.units import duration
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time import host_costs
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.time.records import LIMIT, Kernel
from fakegpu_lab.recording import Recording
from fakegpu_lab.user_code import interrupts

if TYPE_CHECKING:
    from typing_extensions import Self

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.time.records import Collective, Transfer
    from fakegpu_lab.opened.profiled import ProfiledTrace


class HostTimes(NamedTuple):
    """What the simulated host takes, ns: for a launch, and for the longest op without its launch."""

    launch_ns: int
    op_ns: int

    def began(self, record: Kernel | Transfer | Collective) -> tuple[int, int, int]:
        """When a launch's thread began with it: with Python, with PyTorch's C++, with the launching call."""
        launching = record.launched_ns - self.launch_ns
        dispatched = record.dispatched_ns if isinstance(record, Kernel) else 0
        return 0, min(dispatched or launching, launching), launching


class Trace(Recording):
    """Everything that happened between the start and the end of a recording. Made by `record`.

    Times are seconds of simulated time. Ending a recording does not wait for the GPU: a kernel that was launched and
    has not run yet is in the trace, at the time at which it will run.
    """

    def __init__(self, machine: Machine, limit: int = LIMIT) -> None:
        if not hasattr(limit, "__index__") or limit < 0:
            raise FakeGpuError(
                f"record(limit={limit!r}): the number of records to keep must be a whole number, 0 or more; record() "
                f"keeps {LIMIT:,} of each kind."
            )
        self._machine = machine
        from fakegpu_lab.driver.recorder import recording  # imports torch, so only here

        self._recorder = recording.new_recorder(here.host.now, limit)
        self._ended: int | None = None
        super().__init__(self._recorder)

    @interrupts.whole
    def __enter__(self) -> Self:
        from fakegpu_lab.driver.recorder import recording

        if self._ended is not None:
            raise FakeGpuError("This recording has ended: begin another one, with lab.record().")
        self._recorder.began_ns = here.host.now
        for device in self._machine.devices:
            self._recorder.peaks[device.index] = device.allocator.allocated_bytes
            self._recorder.begin_with(device.index, device.allocator.in_use())
        recording.start(self._machine, self._recorder)
        return self

    @interrupts.whole
    def __exit__(self, *exception: object) -> None:
        from fakegpu_lab.driver.memory_report import categories
        from fakegpu_lab.driver.recorder import recording, running_modules

        if self._ended is not None:
            return  # it ends once
        self._recorder.categories = categories.of_models(self._machine, *running_modules.seen())
        recording.stop(self._machine, self._recorder)
        self._ended = here.host.now
        self._recorder.finish(self._ended)

    @property
    def machine(self) -> Machine:
        """The machine that was recorded."""
        return self._machine

    @property
    def simulated(self) -> bool:
        """True: its times are simulated."""
        return True

    @property
    def cards(self) -> dict[int, str]:
        """The names of the devices, by their ordinals."""
        return {device.index: device.profile.name for device in self._machine.devices}

    @property
    def origin(self) -> str:
        """The machine, as `enable` names it."""
        return self._machine.spec.text

    @property
    def host_times(self) -> HostTimes:
        """What launches take the host."""
        host = self._machine.host
        return HostTimes(round(host.launch_us * 1e3), host.ns(host_costs.LINEAR_BACKWARD.backward))

    @property
    def running(self) -> bool:
        """Whether the recording has not ended yet."""
        return self._ended is None

    @property
    def _host_ended_ns(self) -> int:
        return here.host.now if self._ended is None else self._ended

    def _lasted(self, ns: int) -> str:
        return f"{duration(ns)} of simulated time"

    def _has_devices(self) -> str:
        count = len(self._machine.devices)
        last = f"0 to {count - 1}" if count > 1 else "0 alone"
        return f"the machine {self._machine.spec.text!r} has {last}"


def record(limit: int = LIMIT) -> Trace | ProfiledTrace:
    """Record what the machine does: ``with lab.record() as trace: …``.

    Where real cards are watched (`watch`), `torch.profiler` records them, and the records are there when the recording
    has ended.

    Parameters
    ----------
    limit
        How many records of each kind (kernels, transfers, …) are kept; the totals stay exact beyond that. A real card's
        profiler keeps all.

    Raises
    ------
    FakeGpuError
        No machine is enabled, and no real card is watched.
    """
    cards = session.watched()
    if cards is not None:
        from fakegpu_lab.opened.profiled import ProfiledTrace

        return ProfiledTrace(cards.names)
    trace = Trace(session.machine(), limit)
    trace._recorder.keeps = True
    return trace
