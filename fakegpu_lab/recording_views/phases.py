"""The phases of training on a device's time axis: forward, backward, optimizer."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Kernel

FORWARD, BACKWARD, OPTIMIZER = NAMES = ("forward", "backward", "optimizer")

_PHASES = {"backward": BACKWARD, "recompute": BACKWARD, "optimizer": OPTIMIZER}


class Phase(NamedTuple):
    """A stretch of a device's time; `name` is one of `NAMES`."""

    name: str
    start_ns: int
    end_ns: int


def phases(kernels: Iterable[Kernel], device: int) -> list[Phase]:
    """The phases of one device, in order and without overlaps.

    Backward and optimizer are known from autograd and from the stack, forward from the modules. A kernel that is none
    of these belongs to the phase around it, and to forward if backward comes next: the loss, a model without modules.
    What is between backward and the optimizer (clipping gradients) has no phase.
    """
    mine = sorted((kernel for kernel in kernels if kernel.device == device), key=lambda kernel: kernel.start_ns)
    runs = [(name, list(group)) for name, group in groupby(mine, key=_of_kernel)]
    names = [name or _between(runs, place) for place, (name, _) in enumerate(runs)]
    found: list[Phase] = []
    for name, group in groupby(zip(names, runs, strict=True), key=lambda pair: pair[0]):
        if name:
            run = [kernel for _, (_, kernels) in group for kernel in kernels]
            start = max(run[0].start_ns, found[-1].end_ns if found else 0)  # kernels of several streams overlap
            found.append(Phase(name, start, max(start, *(kernel.end_ns for kernel in run))))
    return found


def _of_kernel(kernel: Kernel) -> str:
    return _PHASES.get(kernel.phase) or (FORWARD if kernel.module else "")


def _between(runs: Sequence[tuple[str, list[Kernel]]], place: int) -> str:
    """The phase of kernels that have none of their own: that of both neighbours, or forward before backward."""
    before = runs[place - 1][0] if place else ""
    after = runs[place + 1][0] if place + 1 < len(runs) else ""
    if before == after:
        return after
    return FORWARD if after == BACKWARD else ""
