"""Drawings of time: streams with events, and a pipeline's schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.drawing import PALETTE, Drawing, ink_on, legend
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _LEFT, _ROW = 600.0, 84.0, 40.0
_FORWARD, _BACKWARD = "#0072b2", "#e69f00"


def streams(
    work: Mapping[str, Sequence[tuple[str, float, float]]],
    events: Sequence[tuple[str, float, str, float]] = (),
    unit: str = "ms",
) -> Drawing:
    """Draw what streams do, and the events by which one waits for another.

    Parameters
    ----------
    work
        By stream: (name, start, end) of each piece of work.
    events
        (stream, time) at which an event is recorded, and (stream, time) from which the other one continues.
    unit
        Of the times.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import streams
    >>> print(streams({"copies": [("batch", 0, 2)], "compute": [("step", 2, 5)]}, [("copies", 2, "compute", 2)]))
    copies: batch from 0 to 2 ms. compute: step from 2 to 5 ms. compute waits at 2 for the event of copies at 2.
    """
    ends = [end for pieces in work.values() for _, _, end in pieces]
    unknown = {name for one, _, other, _ in events for name in (one, other)} - set(work)
    if unknown:
        raise FakeGpuError(f"streams: events name {min(unknown)!r}, which is not among {', '.join(work)}.")
    whole = max(ends, default=1) or 1
    drawn = Drawing(_WIDTH, 12 + _ROW * len(work) + 28)
    rows = {name: 12 + _ROW * number for number, name in enumerate(work)}

    def at(time: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 12) * time / whole

    for number, (name, pieces) in enumerate(work.items()):
        drawn.text(_LEFT - 8, rows[name] + 18, name, anchor="end")
        for what, start, end in pieces:
            width = at(end) - at(start)
            colour = PALETTE[number % len(PALETTE)]
            drawn.rect(at(start), rows[name], width, 26, colour, opacity=0.95,
                       hint=f"{what}: {start:g} to {end:g} {unit}")  # fmt: skip
            drawn.text(at(start) + width / 2, rows[name] + 18, what, anchor="middle", colour=ink_on(colour),
                       within=width - 4)  # fmt: skip
    for one, recorded, other, waited in events:
        down = rows[other] > rows[one]
        tail = (at(recorded), rows[one] + (26 if down else 0))
        drawn.arrow(tail, (at(waited), rows[other] + (0 if down else 26)))
    base = drawn.height - 22
    drawn.line((_LEFT, base), (_WIDTH - 12, base))
    for time in _ticks(whole):
        drawn.text(at(time), base + 15, f"{time:g}", anchor="middle")
    drawn.text(_LEFT - 8, base + 15, unit, anchor="end")
    said = [
        f"{name}: " + ", ".join(f"{what} from {start:g} to {end:g} {unit}" for what, start, end in pieces) + "."
        for name, pieces in work.items()
    ]
    said += [
        f"{other} waits at {waited:g} for the event of {one} at {recorded:g}."
        for one, recorded, other, waited in events
    ]
    drawn.words = " ".join(said)
    return drawn


def _ticks(whole: float) -> list[float]:
    """Times from 0 to the end, as many as have room, 1, 2 or 5 (times a power of ten) apart.

    >>> _ticks(5), _ticks(0.7)
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    """
    power = 10 ** math.floor(math.log10(whole / 8))
    step = next(digit * power for digit in (1, 2, 5, 10) if digit * power * 8 >= whole * (1 - 1e-9))
    return [round(number * step, 12) for number in range(math.floor(whole / step * (1 + 1e-9)) + 1)]


def schedule(stages: int, microbatches: int, kind: str, backward: float) -> list[list[tuple[str, int, float, float]]]:
    """When each stage does what: by stage, ("F" or "B", microbatch, start, end); a forward takes 1.

    "gpipe": all forwards, then all backwards (Huang et al., 2019). "1f1b": each stage begins a backward as soon as it
    can, so that it holds the activations of at most `stages` microbatches (Narayanan et al., PipeDream-Flush, 2021).
    """
    orders: list[list[tuple[str, int]]] = []
    for stage in range(stages):
        warm = microbatches if kind == "gpipe" else min(stages - stage, microbatches)
        order = [("F", number) for number in range(warm)]
        for number in range(microbatches):
            order.append(("B", number))
            if warm + number < microbatches:
                order.append(("F", warm + number))
        orders.append(order)
    ends: dict[tuple[str, int, int], float] = {}
    done = [0.0] * stages
    placed: list[list[tuple[str, int, float, float]]] = [[] for _ in range(stages)]
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            what, number = order[0]
            if what == "F":
                before = ends.get(("F", stage - 1, number)) if stage else 0.0
            else:
                before = ends.get(("B", stage + 1, number) if stage < stages - 1 else ("F", stage, number))
            if before is None:
                continue
            start = max(done[stage], before)
            done[stage] = ends[what, stage, number] = start + (1.0 if what == "F" else backward)
            placed[stage].append((what, number, start, done[stage]))
            order.pop(0)
    return placed


def pipeline(stages: int = 4, microbatches: int = 8, kind: str = "1f1b", backward: float = 2.0) -> Drawing:
    """Draw the schedule of a pipeline: which stage works on which microbatch, and how long it idles.

    Parameters
    ----------
    stages, microbatches
        How many of each.
    kind
        ``"gpipe"`` (all forwards first) or ``"1f1b"`` (one forward, one backward).
    backward
        How many times as long as a forward a backward takes.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import pipeline
    >>> print(pipeline(4, 8, "gpipe"))
    A gpipe pipeline of 4 stages and 8 microbatches: every stage is idle 27% of the time.
    """
    if kind not in ("gpipe", "1f1b"):
        raise FakeGpuError(f"pipeline(kind={kind!r}): it can be 'gpipe' or '1f1b'.")
    if stages < 1 or microbatches < 1 or stages > 16 or microbatches > 64:
        raise FakeGpuError(f"pipeline({stages}, {microbatches}): it takes 1 to 16 stages and 1 to 64 microbatches.")
    placed = schedule(stages, microbatches, kind, backward)
    whole = max(end for row in placed for *_, end in row)
    drawn = Drawing(_WIDTH, 12 + 30.0 * stages + 26)
    scale = (_WIDTH - _LEFT - 12) / whole
    for stage, row in enumerate(placed):
        y = 12 + 30.0 * stage
        drawn.text(_LEFT - 8, y + 16, f"stage {stage}", anchor="end")
        drawn.rect(_LEFT, y, whole * scale, 24, "#9a9a9a", opacity=0.12, hint="idle")
        for what, number, start, end in row:
            colour, name = (_FORWARD, "forward") if what == "F" else (_BACKWARD, "backward")
            width = (end - start) * scale
            drawn.rect(_LEFT + start * scale, y, width, 24, colour, opacity=0.95, hint=f"{name} of microbatch {number}")
            drawn.text(_LEFT + (start + end) / 2 * scale, y + 16, str(number), anchor="middle", colour=ink_on(colour),
                       within=width)  # fmt: skip
    busy = sum(end - start for *_, start, end in placed[0])
    idle = round(100 * (1 - busy / whole))
    legend(drawn, _LEFT, drawn.height - 6, [("forward", _FORWARD), ("backward", _BACKWARD), ("idle", "#9a9a9a44")])
    drawn.text(_WIDTH - 12, drawn.height - 6, "the numbers are microbatches", anchor="end")
    drawn.words = (
        f"A {kind} pipeline of {several(stages, 'stage')} and {several(microbatches, 'microbatch', 'microbatches')}: "
        f"every stage is idle {idle}% of the time."
    )
    return drawn
