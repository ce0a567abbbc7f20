"""Rules about memory that grows from step to step."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import TYPE_CHECKING

from fakegpu_lab.advice.finding import OFTEN, Finding
from fakegpu_lab.formatting.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Allocation
    from fakegpu_lab.recording_views.recorded import Recorded

    Holder = Callable[[Iterable[int]], str]

_LEAST_BYTES = 4 * 512
"""Less than this, four blocks of the allocator, is not reported."""


def growing(recorded: Recorded) -> dict[str, list[Allocation]]:
    """By line, the blocks that it allocated again and again throughout the recording and that were not freed."""
    lines: dict[str, list[Allocation]] = defaultdict(list)
    for allocation in recorded.allocations:
        if not allocation.freed and allocation.line:
            lines[allocation.line].append(allocation)
    whole = recorded.ended_ns - recorded.began_ns
    found = {}
    for line, kept in lines.items():
        moments = sorted({allocation.start_ns for allocation in kept})
        steady = len(moments) >= OFTEN and moments[-1] - moments[0] > 0.4 * whole
        if steady and max(b - a for a, b in itertools.pairwise(moments)) < 0.5 * whole:
            found[line] = kept
    return found


def kept_activations(recorded: Recorded, holder: Holder) -> list[Finding]:
    """Results of modules stay alive: a loss that is stored with its graph keeps everything that its backward needs."""
    return _growth(
        recorded, holder, in_modules=True, rule="kept_activations", title="Activations stay alive, step after step",
        why="Forward passes made them: something keeps the graphs of past steps, such as a stored loss or output",
        remedy="Store loss.detach() or loss.item(), and evaluate under torch.no_grad().",
    )  # fmt: skip


def leak(recorded: Recorded, holder: Holder) -> list[Finding]:
    """Memory outside modules grows in each step."""
    return _growth(
        recorded, holder, in_modules=False, rule="leak", title="Memory grows in each step",
        why="Each time this line runs, it takes memory that is never freed",
        remedy="Keep what you need on the host (.cpu(), .item()), detach it, or let go of it (del, an emptied list).",
    )  # fmt: skip


def _growth(
    recorded: Recorded, holder: Holder, *, in_modules: bool, rule: str, title: str, why: str, remedy: str
) -> list[Finding]:
    lines = growing(recorded)
    modules = any(allocation.module for kept in lines.values() for allocation in kept)
    if modules is not in_modules:
        return []  # a stored loss also stays alive outside modules: one finding for both
    every = [allocation for kept in lines.values() for allocation in kept]
    nbytes = sum(allocation.block_bytes for allocation in every)
    if nbytes < _LEAST_BYTES:
        return []
    line, kept = max(lines.items(), key=lambda item: sum(a.block_bytes for a in item[1]))
    steps = _steps(kept)
    held = holder(allocation.address for allocation in every)
    by = f" They are held by {held}." if held else ""
    return [Finding(
        rule, title,
        f"{size(nbytes)} in {len(every):,} blocks were allocated while recording and never freed, "
        f"about {size(nbytes // steps)} each time, {steps:,} times. {why}.{by}",
        remedy, line, 0,
    )]  # fmt: skip


def _steps(kept: Sequence[Allocation]) -> int:
    """How many times the line ran: the median number of blocks that its ops left."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for allocation in kept:
        counts[allocation.name, allocation.module] += 1
    return sorted(counts.values())[len(counts) // 2]
