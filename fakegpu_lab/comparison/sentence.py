"""What a comparison says first: how much faster or slower, what is not comparable, and the largest causes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.comparison.causes import LEAST, work
from fakegpu_lab.formatting.units import amount, duration, several
from fakegpu_lab.recording_views.recorded import device_records

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from fakegpu_lab.comparison.causes import Cause, Pair
    from fakegpu_lab.comparison.sides import Side
    from fakegpu_lab.recording_views.recorded import Recorded

SAME = 0.005
"""Times that differ by less are called the same."""

_WORK = 0.05
"""FLOPs that differ by more are mentioned."""


def reasons(pair: Pair, causes: Sequence[Cause]) -> list[str]:
    """A few sentences: what to know about the result, one or two causes, and what worked against them.

    That two cards are not the same is the first thing to know of two simulations, or of two recordings. Between a
    card and its simulation it comes last.
    """
    named = _named(pair, causes)
    said = [*_context(pair, any(one.kind == "kernels" for one, _ in named)), *(text for _, text in named)]
    cards = _other_cards(pair)
    return [*said, *cards] if pair.mixed else [*cards, *said]


def verdict(pair: Pair) -> str:
    """A sentence: how much faster or slower."""
    old, new = pair.both(lambda side: side.elapsed_ns)
    first, second = _name(pair, pair.before), _name(pair, pair.after)
    first = f"t{first[1:]}" if first.startswith("The ") else first
    step = " per step" if pair.per_step else ""
    times = f"{duration(new)}{step} instead of {duration(old)}"
    if abs(new - old) <= SAME * max(old, new):
        return f"{second} is as fast as {first}: {times}."
    ratio = max(old, new) / max(min(old, new), 1)
    if ratio < 1.1 or (pair.mixed and ratio < 10):
        part = 100 * abs(new - old) / old
        less = f"{part:.{1 if part < 10 else 0}f}% {'less' if new < old else 'more'} time"
        return f"{second} takes {less} than {first}: {times}."
    return f"{second} {_speed(old, new)} as {first}: {times}."


def _name(pair: Pair, side: Side) -> str:
    """What a recording is called, at the beginning of a sentence."""
    name = {"before": "the first", "after": "the second"}.get(side.label, side.label)
    return f"T{name[1:]}" if name.startswith("the ") else name


def _context(pair: Pair, kernels_said: bool) -> list[str]:
    """What differs between the programs or the machines, apart from what they took."""
    old, new = pair.sides
    old_ns, new_ns = pair.both(lambda side: side.elapsed_ns)
    found = []
    if pair.mixed:
        one, other = (old, new) if old.simulated else (new, old)
        old_kernels, new_kernels = pair.both(lambda side: side.means["kernels"])
        alone = f" Kernels alone took {duration(new_kernels)} instead of {duration(old_kernels)}."
        first = f", without what CUDA takes to start ({duration(one.first_use_ns)})" if one.first_use_ns else ""
        found.append(
            f"The times of {one.label} come from a model{first}; those of {other.label} were measured."
            f"{'' if kernels_said else alone}"
        )
    found += [
        f"The first {start:.1f} s of {side.label} are mostly CUDA, which starts: compare .part({start:.1f}) of that "
        "recording."
        for side in pair.sides
        if (start := _started(side.recorded)) is not None
    ]
    if any(side.recorded.dropped[kind] for side in pair.sides for kind in ("kernels", "transfers", "collectives")):
        found.append("A recording was full, so the causes are those of what was kept.")
    if old.steps != new.steps and min(old.steps, new.steps) > 1:
        found.append(f"{_name(pair, new)} has {several(new.steps, 'step')} instead of {old.steps:,}{_compared(pair)}.")
    flops = [each * len(side.devices) * pair.share(side) for each, side in zip(work(old, new), pair.sides, strict=True)]
    if min(flops) > 0 and abs(flops[1] - flops[0]) > _WORK * max(flops):
        found.append(
            f"It does {_times(flops[1] / flops[0])} the arithmetic ({amount(flops[1], 'FLOP')} instead of "
            f"{amount(flops[0], 'FLOP')}), so for the same arithmetic it "
            f"{_speed(old_ns * flops[1], new_ns * flops[0])}."
        )
    return found


def _other_cards(pair: Pair) -> list[str]:
    """What to know if the cards are not the same."""
    old, new = pair.sides
    if old.cards == new.cards:
        return []
    of_it = "kernels and copies may differ for that reason" if pair.mixed else "some or all of the difference is theirs"
    found = [f"{_name(pair, new)} ran on {_cards(new.cards)} instead of {_cards(old.cards)}: {of_it}."]
    if len(old.devices) != len(new.devices):
        found.append("Times are per GPU; kernels are those of the first GPU.")
    return found


def _started(recorded: Recorded) -> float | None:
    """When a real card's recording goes on after its start: seconds, if that was more than half of it.

    The start ends with the last time in which the devices idle for more than a hundredth of the recording.
    """
    whole = recorded.ended_ns - recorded.began_ns
    until, found = recorded.began_ns, recorded.began_ns
    for one in sorted(device_records(recorded), key=lambda record: record.start_ns) if not recorded.simulated else ():
        if one.start_ns - until > whole / 100:
            found = one.start_ns
        until = max(until, one.end_ns)
    start = math.floor((found - recorded.began_ns) / 1e8) / 10
    return start if start > whole / 2e9 else None


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times" if ratio < 10 else f"{ratio:,.0f} times"


def _speed(old: float, new: float) -> str:
    """How fast the second is, as a predicate."""
    return f"is {_times(old / max(new, 1))} as fast" if new <= old else f"takes {_times(new / max(old, 1))} as long"


def _compared(pair: Pair) -> str:
    return ", so times are those of one step" if pair.per_step else ", and does the same work in all"


def _named(pair: Pair, causes: Sequence[Cause]) -> list[tuple[Cause, str]]:
    """One or two causes that have most of the difference, and one that works against it, each with its sentence."""
    old, new = pair.both(lambda side: side.elapsed_ns)
    whole = new - old
    if abs(whole) <= SAME * max(old, new):
        return _balanced(causes, SAME * max(old, new))
    sign = 1 if whole > 0 else -1
    for_it = [one for one in causes if sign * one.ns > 0]
    total = sum(abs(one.ns) for one in for_it)
    named = [one for one in for_it if abs(one.ns) >= LEAST * total][:2]
    against = [one for one in causes if sign * one.ns < 0 and abs(one.ns) >= LEAST * total]
    against = [max(against, key=lambda one: abs(one.ns))] if against else []
    lines: set[str] = set()  # each is written once
    found = []
    for one in (*named, *against):
        text = f"{one.text}." if one.line in lines else str(one)
        lines.add(one.line)
        found.append((one, text if one in named else _opposed(text)))
    return found


def _balanced(causes: Sequence[Cause], least: float) -> list[tuple[Cause, str]]:
    """What became faster and what became slower, if these cancel out."""
    faster, slower = min(causes, key=lambda one: one.ns), max(causes, key=lambda one: one.ns)
    if faster.ns > -least or slower.ns < least:
        return []
    return [(faster, str(faster)), (slower, _opposed(str(slower)))]


def _opposed(text: str) -> str:
    return f"On the other hand, {text[0].lower()}{text[1:]}"


def _cards(cards: Counter[str]) -> str:
    """Such as "2 × NVIDIA A100-SXM4-80GB"."""
    return " and ".join(f"{number} × {name}" if number > 1 else f"one {name}" for name, number in sorted(cards.items()))
