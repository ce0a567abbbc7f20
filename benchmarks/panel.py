"""What an open panel costs: a GPT's training step with it and without, turn by turn in one process.

    python benchmarks/panel.py [--rounds N] [--json FILE]

The panel's reader is one that takes every message and never answers (a stalled front end); serialisation is paid for,
the socket is not. Where other programs use the processors, too, the two times say little; the shares below them are
counted, not compared: what looking at memory and telling of it took of the process's time, and what each op pays for
being watched. The last lines tell what it sent, and what 100,000 small ops leave behind.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from overhead import gpt_step

import fakegpu_lab as lab
from fakegpu_lab.driver.memory_report.live_categories import Watch
from fakegpu_lab.notebook.telemetry.publisher import Outlet, Publisher
from fakegpu_lab.notebook.telemetry.rolling_window import SHARE as RECORDING
from fakegpu_lab.notebook.telemetry.source import Reader, Source

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 8

spent = {"looking": 0.0, "telling": 0.0}
"""Seconds of the processor."""


def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, whose time on the processor is counted under that name."""

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] += time.thread_time() - began

    return timed


def small_ops(count: int = 2000) -> float:
    """Seconds of the processor that a small op takes."""
    x = torch.ones(4, device="cuda")
    with torch.no_grad():
        began = time.process_time()
        for _ in range(count):
            x + x
        return (time.process_time() - began) / count


WARM = 2.0
"""Seconds of work after the panel was opened, before it is measured."""


def main() -> None:
    """Measure, print, and write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="turns of each (default 15)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    lab.enable("a100:2")
    step = gpt_step("cuda:0")
    sent: list[int] = []
    Watch.look = counted("looking", Watch.look)  # type: ignore[method-assign]
    Source.poll = counted("telling", Source.poll)  # type: ignore[method-assign]
    Outlet.publish = counted("telling", Outlet.publish)  # type: ignore[method-assign]
    ops: dict[str, list[float]] = {"without": [], "with": []}

    def send(message: dict[str, Any]) -> None:
        sent.append(len(json.dumps(message)))

    source = Source()
    publisher = Publisher(source)
    for _ in range(5):
        step()
    times: dict[str, list[float]] = {"without": [], "with": []}
    # Of all the process's threads: other programs' share out.
    work: dict[str, list[float]] = {"without": [], "with": []}
    seconds = 0.0
    shares: list[float] = []
    for turn in range(2 * options.rounds):
        name = "with" if turn % 2 else "without"
        outlet = Outlet(source, send, acknowledges=False)
        outlet.spoke()
        if name == "with":
            publisher.add(outlet)
            source.begin()
            opened = time.process_time()
            while time.process_time() - opened < WARM:  # opening costs, once: all Python objects are looked through
                step()
        ops[name].append(min(small_ops() for _ in range(5)))
        before = sum(spent.values())
        began, busy = time.perf_counter(), time.process_time()
        for _ in range(STEPS):
            step()
        work[name].append((time.process_time() - busy) / STEPS)
        times[name].append((time.perf_counter() - began) / STEPS)
        if name == "with":
            seconds += time.perf_counter() - began
            shares.append((sum(spent.values()) - before) / (work[name][-1] * STEPS))
            source.end()
            publisher.remove(outlet)
    figures: dict[str, float] = {}
    for what, measured in (("wall", times), ("processor", work)):
        figures |= {f"{what}_{name}": min(all_) for name, all_ in measured.items()}
        figures[f"{what}_ratio"] = ratio = figures[f"{what}_with"] / figures[f"{what}_without"]
        ratios = [b / a for a, b in zip(measured["without"], measured["with"], strict=True)]
        figures[f"{what}_median_ratio"] = statistics.median(ratios)
        without, with_ = figures[f"{what}_without"] * 1e3, figures[f"{what}_with"] * 1e3
        more = f"{100 * (ratio - 1):+.1f}%   (median of turns {100 * (statistics.median(ratios) - 1):+.1f}%; ≤ 3%)"
        print(f"GPT step, {what:9} {without:7.1f} ms, with a panel {with_:7.1f} ms: {more}")
    kernels = lab.machine().cards[0].ledger.kernels
    step()
    kernels = lab.machine().cards[0].ledger.kernels - kernels
    each = min(ops["with"]) - min(ops["without"])
    figures["counted_share"] = statistics.mean(shares) + each * kernels / figures["processor_without"] + RECORDING
    print(
        f"counted: looking, telling {100 * statistics.mean(shares):.1f}%, {kernels} ops of {each * 1e6:.2f} µs more "
        f"{100 * each * kernels / figures['processor_without']:.1f}%, recording a step now and then {100 * RECORDING} "
        f"%: {100 * figures['counted_share']:.1f}%   (≤ 3%)"
    )
    print(f"{len(sent) / seconds:.1f} messages a second, {sum(sent) / seconds / 1e3:.1f} kB a second")
    source.open()
    source.begin()
    x = torch.ones(4, device="cuda")
    with torch.no_grad():
        for _ in range(100):
            for _ in range(1000):
                x + x
            source.poll()
    message = Reader(source).message()
    assert message is not None
    state = len(message.model_dump_json())
    print(f"after 100,000 small ops the whole state is {state / 1e3:.0f} kB")
    source.close()
    lab.disable()
    if options.json:
        options.json.write_text(json.dumps(figures | {"state_bytes": state}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
