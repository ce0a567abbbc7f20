"""Follows the memory of real cards while a program runs, for a live display: a row of figures at each poll and step.

Polls come from the display's thread, a few times a second, and read counters only. What memory is for is looked up
where no backward pass runs: after an optimizer's step, now and then, and after a cell.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from fakegpu_lab.driver.memory_report.memory_curve import Curve
from fakegpu_lab.hardware.memory_categories import NAMES
from fakegpu_lab.real import memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.hardware.memory_categories import Categories
    from fakegpu_lab.real.cards import Cards

SHARE = 0.003
"""The part of the program's time that looking at live objects may take."""
LEAST_SECONDS = 0.005
"""The least time between two rows after steps."""


class Watch:
    """Watches cards between `start` and `stop`.

    Attributes
    ----------
    on_step
        Called in the training thread after each step of an optimizer, with the number of steps so far.
    curves
        The memory of each card, by ordinal.
    """

    def __init__(self, cards: Cards) -> None:
        self.cards = cards
        self.on_step: list[Callable[[int], object]] = []
        self.curves = {ordinal: Curve() for ordinal in range(len(cards.names))}
        self._rows: dict[int, tuple[int, ...]] = {}
        self._known: dict[int, Categories] = {}
        self._steps: list[tuple[int, int]] = []
        self._count = 0
        self._due = self._next_look = 0.0
        self._lock = threading.Lock()
        self._hook: Any = None

    def start(self) -> None:
        """Begin to watch."""
        self._hook = register_optimizer_step_post_hook(self._stepped)
        self.sample()

    def stop(self) -> None:
        """Stop watching; the curves stay."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def begin(self) -> None:
        """Note that a cell begins."""
        self.sample()

    def take(self) -> list[tuple[int, int]]:
        """The optimizer's steps since the last call, each as (ns, number); adds a row to the curves."""
        self.sample()
        with self._lock:
            steps, self._steps = self._steps, []
        return steps

    def look(self, *, thorough: bool = False) -> None:
        """Look up what memory is for, if that is due or `thorough`; in the program's thread only."""
        began = time.monotonic()
        if thorough or began >= self._next_look:
            with contextlib.suppress(Exception):  # tensors of a compiler, an allocator without a snapshot: no reason
                self._known = memory.by_category()  # to stop a program
            ended = time.monotonic()
            self._next_look = ended + (ended - began) / SHARE
        self.sample()

    def sample(self) -> None:
        """Add a row to the curve of each card whose memory has changed."""
        with self._lock:
            for ordinal, curve in self.curves.items():
                row = self._row(ordinal)
                if row != self._rows.get(ordinal):
                    curve.put((self.cards.now_ns, *row))
                    self._rows[ordinal] = row

    def _row(self, ordinal: int) -> tuple[int, ...]:
        """The bytes of each category, and those reserved.

        Since the last look, memory was taken, which counts as "other", or freed: from the last category on.
        """
        stats = torch.cuda.memory_stats(ordinal)
        allocated = stats.get("allocated_bytes.all.current", 0)
        known = self._known.get(ordinal)
        row = list(known.model_dump().values()) if known is not None else [0] * len(NAMES)
        excess = sum(row) - allocated
        row[-1] -= min(excess, 0)
        for place in reversed(range(len(row))):
            less = min(max(excess, 0), row[place])
            row[place] -= less
            excess -= less
        return (*row, stats.get("reserved_bytes.all.current", 0))

    def _stepped(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._count += 1
        now = time.monotonic()
        with self._lock:
            self._steps.append((self.cards.now_ns, self._count))
        if now >= self._due:
            self.look()
            self._due = time.monotonic() + LEAST_SECONDS
        for call in self.on_step:
            call(self._count)
