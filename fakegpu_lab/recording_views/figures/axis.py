"""The time axis of a figure: a part of a recording, in a unit that suits its length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))


@dataclass(frozen=True)
class Axis:
    """The time axis: the part of the recording that is shown, in a unit that suits its length."""

    began_ns: int
    first_ns: int
    last_ns: int
    unit_ns: float
    unit: str

    @property
    def width_ns(self) -> int:
        """How long the part is."""
        return self.last_ns - self.first_ns

    def at(self, ns: int) -> float:
        """Where a time is on the axis."""
        return (ns - self.began_ns) / self.unit_ns


def axis_of(recorded: Recorded, start: float | None, end: float | None) -> Axis:
    """The axis of a recording from `start` to `end`, in seconds since it began; None: all of it."""
    began, ended = recorded.began_ns, recorded.ended_ns
    first = began if start is None else began + round(start * 1e9)
    last = ended if end is None else began + round(end * 1e9)
    if first > last or first > ended or last < began:
        whole = (ended - began) / 1e9
        raise FakeGpuError(
            f"figure(start={start}, end={end}) shows no part of the recording, which has {whole:.6g} seconds: both are "
            "seconds since it began, the start before the end."
        )
    last = max(last, first + 1)
    return Axis(began, first, last, *unit_of(last - first))


def unit_of(width_ns: int) -> tuple[float, str]:
    """The unit that suits a time: its nanoseconds and its name."""
    return next((pair for pair in _UNITS if width_ns >= pair[0]), _UNITS[-1])


def byte_ticks(most: int, many: int) -> list[int]:
    """Sizes for a scale from 0 to `most` or a little more, up to `many` apart from 0: multiples of a power of two.

    >>> [tick // 2**20 for tick in byte_ticks(232 * 2**20, 4)]
    [0, 64, 128, 192]
    >>> [tick // 2**20 for tick in byte_ticks(248 * 2**20, 2)]
    [0, 128, 256]
    """
    step = 1 << (max(1, -(-most // (many + 1))) - 1).bit_length()
    return list(range(0, most + step // 8 + 1, step))
