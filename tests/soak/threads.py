"""Eight threads train at the same time; half of them record, half take snapshots: ``python threads.py ops``."""

from __future__ import annotations

import sys
import threading
import traceback

import torch
from torch import nn

import fakegpu_lab as lab

THREADS = 8
STEP_OPS = 20
"""Kernels of a step, at the least."""


def main(ops: int) -> None:
    lab.enable("a100:2")
    failures: list[str] = []
    steps = ops // THREADS // STEP_OPS

    def program(number: int) -> None:
        try:
            torch.cuda.set_device(number % 2)
            net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
            optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
            data = torch.randn(4, 8, device="cuda")

            def step() -> None:
                optimizer.zero_grad()
                net(data).sum().backward()
                optimizer.step()

            for count in range(steps):
                if number < THREADS // 2:
                    with lab.record() as trace:
                        step()
                    check(trace)
                else:
                    step()
                    if count % 10 == 0:
                        memory = lab.snapshot(categories=True).devices[number % 2].memory
                        assert memory.categories is not None
                        assert min(memory.categories.model_dump().values()) >= 0
        except BaseException:
            failures.append(traceback.format_exc())

    threads = [threading.Thread(target=program, args=(number,), name=f"thread {number}") for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(failures))
    print(f"{THREADS * steps * STEP_OPS} ops in {THREADS} threads, {len(failures)} failures")
    sys.exit(bool(failures))


def check(trace: lab.Trace) -> None:
    """A recording has all of its own thread, and each thing once."""
    mine = [kernel for kernel in trace.kernels if kernel.thread == threading.current_thread().name]
    assert len(mine) >= 10, len(mine)
    numbers = [kernel.correlation for kernel in trace.kernels]
    assert len(set(numbers)) == len(numbers)
    assert all(one.end_ns >= one.start_ns for one in trace.allocations)
    assert sum(total.count for total in trace.totals.values()) >= len(numbers)
    assert trace.peak_memory(0) >= 0
    trace.summary()


if __name__ == "__main__":
    main(int(sys.argv[1]))
