"""`torch.utils.benchmark.Timer` in simulated time, for statements that take some.

torch's timer synchronises and reads the clock. Here it reads a clock that advances by simulated time if any has passed
since the last reading (something was launched, copied or pinned), and by the wall clock otherwise: a statement on CPU
tensors is measured as usual.

The autoranges run a statement until enough time has been measured to average out noise. Simulated time has no noise,
and a microsecond of it takes the host much longer, so they measure a few (`BLOCKS`) small blocks. ``timeit(n)`` still
runs the statement `n` times.
"""

from __future__ import annotations

import functools
import timeit
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.changes import imported, recoded, replaced, wrapped
from fakegpu_lab.hardware.time.clock import here

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change


LARGEST_BLOCK = 100
"""At most this many runs between two readings."""

WORTH_SECONDS = 3e-4
"""Simulated time that a block should take, so that its last launch and synchronisation are at most 2% of it."""

_TIMER = 4
"""Of how many arguments of `Timer` the timer is the last: stmt, setup, global_setup, timer."""

BLOCKS = 5
"""Blocks that an autorange measures, enough for a median and quartiles."""


class _Clock:
    """Seconds that advance by simulated time where some has passed, else by the wall clock.

    Attributes
    ----------
    simulated
        Whether the time between the last two readings was simulated.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.simulated = False
        self.simulated_ns = 0
        self.wall = 0.0

    def read(self) -> float:
        """Synchronise and read (`timer` in torch/utils/benchmark/utils/timer.py)."""
        self.simulated = here.host.clock != self.simulated_ns  # before synchronising, which takes time, too
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()
        wall, simulated_ns = timeit.default_timer(), here.host.clock
        if self.simulated:
            self.now += max(simulated_ns - self.simulated_ns, 0) / 1e9
        else:
            self.now += wall - self.wall
        self.wall, self.simulated_ns = wall, simulated_ns
        return self.now


clock = _Clock()


def _read() -> float:  # its code replaces that of torch's `timer`, which does not see this module's globals
    from fakegpu_lab.driver.profiler.benchmark_timer import clock

    return clock.read()


def _timer() -> float:  # as torch has it since 2.13
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return timeit.default_timer()


def _with_timer(init: Any) -> Any:
    @functools.wraps(init)
    def with_timer(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) < _TIMER:
            kwargs.setdefault("timer", clock.read)
        init(self, *args, **kwargs)

    return with_timer


def _changes(torch_timer: Any) -> list[Change]:
    timer_class: Any = torch_timer.Timer
    estimate, measure = timer_class._estimate_block_size, timer_class._threaded_measurement_loop

    def estimate_block_size(self: Any, min_run_time: float) -> int:
        self._timeit(1)
        self._uses_device = clock.simulated
        if not self._uses_device:
            return int(estimate(self, min_run_time))
        number = 1
        while number < LARGEST_BLOCK and self._timeit(number) < WORTH_SECONDS:
            number *= 10
        return number

    def threaded_measurement_loop(
        self: Any,
        number: int,
        time_hook: Callable[[], float],
        stop_hook: Callable[[list[float]], bool],
        min_run_time: float,
        max_run_time: float | None = None,
        callback: Any = None,
    ) -> list[float]:
        if getattr(self, "_uses_device", False):
            stop_hook, min_run_time = (lambda times: len(times) >= BLOCKS), 0.0
        return list(measure(self, number, time_hook, stop_hook, min_run_time, max_run_time, callback))

    path = torch_timer.__name__
    rows = [
        replaced(f"{path}.Timer._estimate_block_size", estimate_block_size, _WHY),
        replaced(f"{path}.Timer._threaded_measurement_loop", threaded_measurement_loop, _WHY),
    ]
    if hasattr(torch_timer.timer, "__code__"):
        if "is_available" not in torch_timer.timer.__code__.co_names:
            # Before 2.13, a module imported while there is a machine would synchronise always, also without one.
            torch_timer.timer.__code__ = _timer.__code__
        return [*rows, recoded(f"{path}.timer", _read, _WHY)]
    # Before 2.13, if it was imported without a machine: the clock itself, which is the default of an argument.
    return [
        *rows,
        replaced(f"{path}.timer", clock.read, _WHY),
        wrapped(f"{path}.Timer.__init__", _with_timer, _WHY),
    ]


_WHY = "it shows simulated time where some has passed"
CHANGES = [imported("torch.utils.benchmark.utils.timer", _changes, _WHY)]
