"""How busy a device was recently: NVML's utilization, from samples taken when hosts wait.

NVML samples a card over "between 1 second and 1/6 second, depending on the product" (nvmlDeviceGetUtilizationRates).
Here the period is the last sixth of a second of simulated time, or the machine's whole life if that is shorter.
"""

from __future__ import annotations

from collections import deque

WINDOW_NS = 1_000_000_000 // 6
"""The sample period."""

_SAMPLE_INTERVAL_NS = WINDOW_NS // 64


class UtilizationSamples:
    """Samples of a device's past: how many nanoseconds of kernels had run by then.

    A sample is taken when a host waits for the device, at most every 1/64 of the sample period; between two samples the
    device counts as evenly busy.
    """

    __slots__ = ("_samples", "due")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque([(0, 0)], maxlen=256)
        self.due = 0
        """The time from which the next sample is worth taking, ns."""

    def note(self, now: int, ran: int) -> None:
        """Add a sample: kernels had run for `ran` ns by `now`. Called after a wait, once a sample is `due`."""
        self.due = now + _SAMPLE_INTERVAL_NS
        self._samples.append((now, ran))

    def busy(self, now: int, ran: int) -> float:
        """The fraction of the sample period ending `now` in which a kernel ran, 0 to 1."""
        began = max(0, now - WINDOW_NS)
        if now <= began:
            return 0.0
        samples = [*self._samples, (now, ran)]
        return min(1.0, max(0.0, (ran - _ran_by(samples, began)) / (now - began)))


def _ran_by(samples: list[tuple[int, int]], when: int) -> float:
    """Nanoseconds of kernels run by a time, interpolated between the samples before and after it."""
    for place in range(len(samples) - 2, -1, -1):
        time, done = samples[place]
        if time <= when:
            later, more = samples[place + 1]
            return done + (more - done) * (when - time) / max(later - time, 1)
    return float(samples[0][1])
