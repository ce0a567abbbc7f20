"""How busy a device was of late: what NVML calls utilisation, from what the clock knows when hosts wait.

NVML samples a card over "between 1 second and 1/6 second, depending on the product" (nvmlDeviceGetUtilizationRates).
Here it is the last sixth of a second of simulated time, or all of it where the machine is younger.
"""

from __future__ import annotations

from collections import deque

WINDOW_NS = 1_000_000_000 // 6
"""The sample period."""

_GRAIN_NS = WINDOW_NS // 64


class Load:
    """Points of a device's past: how long kernels had run by then.

    A point is noted when a host waits for the device, at most every 1/64 of the sample period; between two points the
    device is taken to have been busy evenly.
    """

    __slots__ = ("_points", "due")

    def __init__(self) -> None:
        self._points: deque[tuple[int, int]] = deque([(0, 0)], maxlen=256)
        self.due = 0
        """From when on the next point is worth noting, ns."""

    def note(self, now: int, ran: int) -> None:
        """Remember that kernels had run for `ran` ns by `now`; called after a wait, once that is `due`."""
        self.due = now + _GRAIN_NS
        self._points.append((now, ran))

    def busy(self, now: int, ran: int) -> float:
        """The part of the sample period that ends `now` in which a kernel ran: 0 to 1."""
        began = max(0, now - WINDOW_NS)
        if now <= began:
            return 0.0
        points = [*self._points, (now, ran)]
        return min(1.0, max(0.0, (ran - _at(points, began)) / (now - began)))


def _at(points: list[tuple[int, int]], when: int) -> float:
    """Nanoseconds of kernels that had run at a time, between the points before and after it."""
    for place in range(len(points) - 2, -1, -1):
        time, done = points[place]
        if time <= when:
            later, more = points[place + 1]
            return done + (more - done) * (when - time) / max(later - time, 1)
    return float(points[0][1])
