"""`record()`: what happened on the simulated GPUs, to look at or to assert on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab import session
from fakegpu_lab.hardware.clock import here
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.recorder import Recorder

if TYPE_CHECKING:
    from collections import Counter

    from typing_extensions import Self

    from fakegpu_lab.hardware.machine import Machine
    from fakegpu_lab.hardware.order import Race
    from fakegpu_lab.hardware.records import Allocation, Kernel, Total, Transfer, Wait


class Trace:
    """What happened between the start and the end of a recording. Made by `record`.

    Times are seconds of simulated time. At the end, nothing is waited for: what was launched and has not run is in
    the trace, at the time at which it will run.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        from fakegpu_lab.driver import recording  # imports torch: not before it is needed

        self._recorder = Recorder(recording.note, recording.notes, here.host.now)
        self._ended: int | None = None

    def __enter__(self) -> Self:
        from fakegpu_lab.driver import recording

        self._recorder.began_ns = here.host.now
        self._recorder.notes = recording.notes
        for device in self.machine.devices:
            self._recorder.peaks[device.index] = device.allocator.allocated_bytes
        recording.start(self.machine, self._recorder)
        return self

    def __exit__(self, *exception: object) -> None:
        from fakegpu_lab.driver import recording

        recording.stop(self.machine, self._recorder)
        self._ended = here.host.now
        self._recorder.finish(self._ended)

    @property
    def kernels(self) -> list[Kernel]:
        """Every kernel, in the order of their launch."""
        return self._recorder.kernels

    @property
    def transfers(self) -> list[Transfer]:
        """Every copy between host and device or between devices, in the order of their launch."""
        return self._recorder.transfers

    @property
    def allocations(self) -> list[Allocation]:
        """Every block of device memory taken while recording."""
        return self._recorder.allocations

    @property
    def waits(self) -> list[Wait]:
        """Every time that a host thread waited for a device."""
        return self._recorder.waits

    @property
    def races(self) -> list[Race]:
        """Uses of the same memory by two streams that nothing orders: a `wait_stream` or an event is missing.

        ``print(trace.races[0])`` names both lines. Found by order, not by time: also where the simulated times happen
        to be harmless.
        """
        return self._recorder.races

    @property
    def totals(self) -> dict[tuple[int, str], Total]:
        """Kernels and copies by (device, name): exact, also where records were dropped."""
        return self._recorder.totals

    @property
    def dropped(self) -> Counter[str]:
        """How many records of a kind were not kept, because a recording is bounded."""
        return self._recorder.dropped

    @property
    def elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it and every device had done its work."""
        return (max(self._recorder.last_ns, self._now()) - self._recorder.began_ns) / 1e9

    @property
    def host_elapsed(self) -> float:
        """Seconds from the start of the recording until the host ended it."""
        return (self._now() - self._recorder.began_ns) / 1e9

    def _now(self) -> int:
        return here.host.now if self._ended is None else self._ended

    def busy(self, device: int = 0) -> float:
        """Seconds in which at least one kernel ran on a device."""
        self._check(device)
        total, until = 0, 0
        for kernel in sorted(self.kernels, key=lambda k: k.start_ns):
            if kernel.device == device and kernel.end_ns > until:
                total += kernel.end_ns - max(kernel.start_ns, until)
                until = kernel.end_ns
        return total / 1e9

    def peak_memory(self, device: int = 0) -> int:
        """The most bytes that tensors held on a device while recording (as torch.cuda.max_memory_allocated counts)."""
        self._check(device)
        return self._recorder.peaks.get(device, 0)

    def _check(self, device: int) -> None:
        count = len(self.machine.devices)
        if not 0 <= device < count:
            last = f"0 to {count - 1}" if count > 1 else "0 alone"
            raise FakeGpuError(f"There is no device {device}: the machine {self.machine.spec.text!r} has {last}.")

    def __repr__(self) -> str:
        races = f", {len(self.races)} races: see trace.races" if self.races else ""
        return (
            f"<Trace of {self.elapsed * 1e3:.3f} ms: {len(self.kernels)} kernels, {len(self.transfers)} transfers, "
            f"{len(self.allocations)} allocations{races}>"
        )


def record() -> Trace:
    """Record what the machine does: ``with lab.record() as trace: …``.

    Raises
    ------
    FakeGpuError
        There is no machine.
    """
    return Trace(session.machine())


def host_work(seconds: float) -> None:
    """Let the calling thread be busy for so many seconds of simulated time, as with a slow data loader."""
    if not seconds >= 0:
        raise FakeGpuError(f"host_work({seconds!r}): the seconds must be 0 or more.")
    here.host.work(round(seconds * 1e9))
