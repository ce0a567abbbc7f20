"""Where the time of a simulated step goes: wrapping, memory, time, and everything else, in µs.

    python benchmarks/where.py [--quick] [--ops] [PROGRAM…]

Each program runs on the CPU, through a bare wrapper subclass (`floor`), simulated, and simulated without its memory or
without its time: what a part costs is what the step is shorter without it. The five alternate in one process; the lower
quartiles are printed. ``--ops`` also lists the ops that cross into Python, with their number and their time in a step,
wrapped and simulated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from floor import _any, bare
from overhead import WORK, Step

import fakegpu_lab as lab
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import launch

if TYPE_CHECKING:
    from collections.abc import Callable


def _through(dispatch: Any) -> None:
    """Send every op of a device through a function."""
    FakeCudaTensor.__torch_dispatch__ = staticmethod(dispatch)  # type: ignore[method-assign]


def _everywhere(name: str, there: Any, instead: Any) -> None:
    """Replace a function in all of the driver's modules that have it."""
    for key, module in list(sys.modules.items()):
        if key.startswith("fakegpu_lab.driver") and vars(module).get(name) is there:
            setattr(module, name, instead)


def _without(name: str, what: Any, stub: Any) -> tuple[Callable[[], None], Callable[[], None]]:
    return lambda: _everywhere(name, what, stub), lambda: _everywhere(name, stub, what)


def seconds(step: Step, calls: int) -> float:
    """Of one call, on average."""
    start = time.perf_counter()
    for _ in range(calls):
        step()
    return (time.perf_counter() - start) / calls


def parts(make: Callable[[str], Step], calls: int, rounds: int) -> dict[str, float]:
    """The ways to run a step, in µs: of all rounds, the one that a quarter are quicker than."""
    cpu, device = make("cpu"), make("cuda:0")
    shared = Buffer(_any["device"], 512, 0)
    no_memory = _without("Buffer", Buffer, lambda device, nbytes, stream: shared)
    no_time = _without("launch", launch, lambda *args: None)
    nothing = (lambda: None, lambda: None)
    ways: dict[str, tuple[Step, Any, Any, Any]] = {
        "cpu": (cpu, dispatcher.run, *nothing),
        "bare": (device, bare, *nothing),
        "simulated": (device, dispatcher.run, *nothing),
        "no memory": (device, dispatcher.run, *no_memory),
        "no time": (device, dispatcher.run, *no_time),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for around in range(rounds + 1):
        for name, (step, dispatch, enter, leave) in ways.items():
            _through(dispatch)
            enter()
            try:
                took = seconds(step, calls)
            finally:
                leave()
            if around:  # the first round warms up
                found[name].append(took * 1e6)
    _through(dispatcher.run)
    return {name: statistics.quantiles(times, n=4)[0] for name, times in found.items()}


def ops(step: Step, dispatch: Any, times: int = 50) -> list[tuple[str, float, float]]:
    """The ops of a step that cross into Python: name, calls, and µs in a step without those that they call."""
    calls, took = Counter[str](), Counter[str]()
    inside = [0.0]

    def counted(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inside.append(0.0)
        start = time.perf_counter()
        try:
            return dispatch(func, types, args, kwargs or {})
        finally:
            whole = time.perf_counter() - start
            name = str(func)
            calls[name] += 1
            took[name] += whole - inside.pop()
            inside[-1] += whole

    step()
    _through(counted)
    for _ in range(times):
        step()
    _through(dispatcher.run)
    return [(name, number / times, took[name] / times * 1e6) for name, number in calls.most_common()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="5 rounds, for a look")
    parser.add_argument("--ops", action="store_true", help="also list the ops that cross into Python")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help='such as "MLP step"; default: all')
    options = parser.parse_args()
    lab.enable("a100:2")
    anything: Any = torch.ones(1, device="cuda")
    _any.update(device=anything._device, buffer=anything._buffer, seed=torch.zeros((), dtype=torch.int64))
    heads = ("CPU", "wrapping", "memory", "time", "the rest", "simulated", "wrapped ×", "simulated ×")
    print(f"{'':12}" + "".join(f"{head:>12}" for head in heads))
    for name, make, no_grad, calls, _ in WORK:
        if options.programs and name not in options.programs:
            continue
        with torch.set_grad_enabled(not no_grad):
            us = parts(make, max(calls // 4, 1), 5 if options.quick else 41)
            memory, timing = us["simulated"] - us["no memory"], us["simulated"] - us["no time"]
            rest = us["simulated"] - us["bare"] - memory - timing
            columns = (us["cpu"], us["bare"] - us["cpu"], memory, timing, rest, us["simulated"])
            ratios = us["bare"] / us["cpu"], us["simulated"] / us["cpu"]
            print(f"{name:12}" + "".join(f"{c:12.2f}" for c in (*columns, *ratios)))
            if options.ops:
                step = make("cuda:0")
                wrapped = {op: micro for op, _, micro in ops(step, bare)}
                for op, number, micro in ops(step, dispatcher.run):
                    print(f"    {op:50}{number:6.1f}{wrapped.get(op, 0):10.1f}{micro:10.1f} µs")


if __name__ == "__main__":
    main()
