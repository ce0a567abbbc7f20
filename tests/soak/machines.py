"""Machines enabled and disabled many times, after which torch is as it was: ``python machines.py count``."""

from __future__ import annotations

import gc
import signal
import sys
from typing import Any

import psutil
import torch

import fakegpu_lab as lab

ALLOWED = 8 << 20
"""Bytes by which the process may grow after the first tenth."""

SPECS = ("a100", "a100:2", "t4:4", "dgx-a100", "h100:2")


def main(count: int) -> None:
    use(SPECS[0])
    torchs, handler = attributes(), signal.getsignal(signal.SIGINT)
    before = 0
    for number in range(count):
        use(SPECS[number % len(SPECS)])
        if number == count // 10:
            before = resident()
    grown = resident() - before
    changed = [name for name, value in attributes().items() if torchs.get(name) is not value]
    if signal.getsignal(signal.SIGINT) is not handler:
        changed.append("the handler of SIGINT")
    print(f"{count} machines, {grown / 2**20:.1f} MiB more after the first tenth, {len(changed)} changes: {changed}")
    sys.exit(grown > ALLOWED or bool(changed))


def use(spec: str) -> None:
    lab.enable(spec)
    leaf = torch.ones(8, 8, device="cuda", requires_grad=True)
    with lab.record():
        (leaf @ leaf).sum().backward()
    lab.disable()


def attributes() -> dict[str, Any]:
    """What can be changed in torch, by name."""
    owners = (torch, torch.Tensor, torch.cuda, torch.nn.Module, torch.autograd, torch.autograd.graph, torch._C)
    return {f"{owner.__name__}.{name}": value for owner in owners for name, value in vars(owner).items()}


def resident() -> int:
    """The process's memory in RAM."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


if __name__ == "__main__":
    main(int(sys.argv[1]))
