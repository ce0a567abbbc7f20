"""Times calls with CUDA events: medians of repeats, after a warm-up."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], Any]

REPEATS = 5
PATIENCE = 2.0
"""Seconds of the computer's time after which a figure is not measured again; the first measurement always counts."""
AHEAD = 2.0
"""How much longer the card is kept busy than the host takes to launch what is measured."""


class Stopwatch:
    """Measures one card, the current one.

    Parameters
    ----------
    blocker
        Launches a kernel that keeps the card busy for a while; `kernels` needs it.
    """

    def __init__(self, blocker: Call = lambda: None) -> None:
        self._blocker = blocker
        self._blocks = 0.0

    def kernels(self, call: Call, calls: int = 10) -> float:
        """Seconds of the kernels of one call: the card has no gaps, because the host launches them ahead of it."""
        if not self._blocks:
            self._blocker()
            self._blocks = self._median(lambda: self._batch(self._blocker, 3)) / 3
        host = self._batch(call, calls)  # the longer of the host's and the card's time
        blocks = min(200, int(AHEAD * host / self._blocks) + 1)
        return self._median(lambda: self._batch(call, calls, blocks)) / calls

    def calls(self, call: Call, calls: int = 100) -> float:
        """Seconds between two of many calls: the longer of the host's time for one and of the card's."""
        call()
        self._batch(call, calls)
        once = self._median(lambda: self._batch(call, calls))
        twice = self._median(lambda: self._batch(call, 2 * calls))
        return max(twice - once, 0.0) / calls

    def once(self, call: Call) -> float:
        """Seconds of a single call, with what the host does for it."""
        return self._batch(call, 1)

    def _batch(self, call: Call, calls: int, blocks: int = 0) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        for _ in range(blocks):
            self._blocker()
        start.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def _median(self, measure: Callable[[], float]) -> float:
        began = time.monotonic()
        found = [measure()]
        while len(found) < REPEATS and time.monotonic() - began < PATIENCE:
            found.append(measure())
        return statistics.median(found)
