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
_NAMES = {("F", 0): ("forward", _FORWARD), ("F", 1): ("its second part", "#56b4e9"), ("B", 0): ("backward", _BACKWARD),
          ("B", 1): ("its second part", "#f2d06b"), ("W", 0): ("gradients of weights", "#009e73")}  # fmt: skip
"""What a pipeline's stage does, with which of its parts: name and color."""


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


def schedule(
    stages: int, microbatches: int, kind: str, backward: float
) -> list[list[tuple[str, int, int, float, float]]]:
    """When each stage does what: by stage, (what, microbatch, part of the stage, start, end); a forward takes 1.

    "F" is a forward, and "B" a backward.

    - "gpipe": all forwards, then all backwards (Huang et al., 2019).
    - "1f1b": each stage begins a backward as soon as it can, so that it holds the activations of at most `stages`
      microbatches (Narayanan et al., PipeDream-Flush, 2021).
    - "interleaved": each stage has two parts of the model, number s and number `stages` + s, and works on `stages`
      microbatches with one part before it takes the other (Narayanan et al., 2021, section 2.2).
    - "zero-bubble": "B" are the gradients of the inputs, half of a backward, and "W" those of the weights, which
      nobody waits for: a stage does them later, but holds no more than `stages` microbatches (Qi et al., 2023, ZB-H1).
    """
    orders = [_order(stage, stages, microbatches, kind) for stage in range(stages)]
    parts = 1 + max(part for order in orders for _, _, part in order)
    backward = backward / 2 if kind == "zero-bubble" else backward / parts
    takes = {"F": 1.0 / parts, "B": backward, "W": backward}
    ends: dict[tuple[str, int, int], float] = {}
    done = [0.0] * stages
    placed: list[list[tuple[str, int, int, float, float]]] = [[] for _ in range(stages)]
    while any(orders):
        for stage, order in enumerate(orders):
            if not order:
                continue
            what, number, part = order[0]
            at = part * stages + stage  # in the whole model
            if what == "F":
                before = ends.get(("F", at - 1, number)) if at else 0.0
            elif what == "B":
                before = ends.get(("B", at + 1, number) if at < parts * stages - 1 else ("F", at, number))
            else:
                before = ends.get(("B", at, number))
            if before is None:
                continue
            start = max(done[stage], before)
            done[stage] = ends[what, at, number] = start + takes[what]
            placed[stage].append((what, number, part, start, done[stage]))
            order.pop(0)
    return placed


def _order(stage: int, stages: int, microbatches: int, kind: str) -> list[tuple[str, int, int]]:
    """What a stage does, in order: (what, microbatch, part of the stage)."""
    if kind == "interleaved":
        rounds = [(first + number, part) for first in range(0, microbatches, stages) for part in (0, 1)
                  for number in range(stages)]  # fmt: skip
        forwards = [("F", number, part) for number, part in rounds]
        backwards = [("B", number, 1 - part) for number, part in rounds]
        warm = min(2 * (stages - stage - 1) + stages, len(forwards))
        pairs = [one for pair in zip(forwards[warm:], backwards, strict=False) for one in pair]
        return forwards[:warm] + pairs + backwards[len(forwards) - warm :]
    warm = microbatches if kind == "gpipe" else min(stages - stage, microbatches)
    order = [("F", number, 0) for number in range(warm)]
    for number in range(microbatches):
        order.append(("B", number, 0))
        if kind == "zero-bubble" and number >= stage:
            order.append(("W", number - stage, 0))
        if warm + number < microbatches:
            order.append(("F", warm + number, 0))
    if kind == "zero-bubble":
        order += [("W", number, 0) for number in range(max(microbatches - stage, 0), microbatches)]
    return order


def pipeline(stages: int = 4, microbatches: int = 8, kind: str = "1f1b", backward: float = 2.0) -> Drawing:
    """Draw the schedule of a pipeline: which stage works on which microbatch, and how long it idles.

    Parameters
    ----------
    stages, microbatches
        How many of each.
    kind
        ``"gpipe"`` (all forwards first), ``"1f1b"`` (one forward, one backward), ``"interleaved"`` (1F1B with two
        parts of the model in each stage) or ``"zero-bubble"`` (1F1B in which gradients of weights wait).
    backward
        How many times as long as a forward a backward takes.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import pipeline
    >>> print(pipeline(4, 8, "gpipe"))
    A gpipe pipeline of 4 stages and 8 microbatches: every stage is idle 27% of the time.
    """
    if kind not in ("gpipe", "1f1b", "interleaved", "zero-bubble"):
        raise FakeGpuError(f"pipeline(kind={kind!r}): it can be 'gpipe', '1f1b', 'interleaved' or 'zero-bubble'.")
    if stages < 1 or microbatches < 1 or stages > 16 or microbatches > 64:
        raise FakeGpuError(f"pipeline({stages}, {microbatches}): it takes 1 to 16 stages and 1 to 64 microbatches.")
    if kind == "interleaved" and microbatches % stages:
        raise FakeGpuError(
            f"pipeline({stages}, {microbatches}, 'interleaved'): the number of microbatches must be a multiple of "
            f"{stages}, such as {stages * math.ceil(microbatches / stages)}."
        )
    placed = schedule(stages, microbatches, kind, backward)
    whole = max(end for row in placed for *_, end in row)
    names = {key: _NAMES[key] for key in _NAMES if any(key == (one[0], one[2]) for row in placed for one in row)}
    if kind == "zero-bubble":
        names["B", 0] = "gradients of inputs", _BACKWARD
    lines = 1 + (len(names) > 2)
    drawn = Drawing(_WIDTH, 12 + 30.0 * stages + 8 + 18 * lines)
    scale = (_WIDTH - _LEFT - 12) / whole
    for stage, row in enumerate(placed):
        y = 12 + 30.0 * stage
        drawn.text(_LEFT - 8, y + 16, f"stage {stage}", anchor="end")
        drawn.rect(_LEFT, y, whole * scale, 24, "#9a9a9a", opacity=0.12, hint="idle")
        for what, number, part, start, end in row:
            name, colour = names[what, part]
            width = (end - start) * scale
            drawn.rect(_LEFT + start * scale, y, width, 24, colour, opacity=0.95, hint=f"{name} of microbatch {number}")
            drawn.text(_LEFT + (start + end) / 2 * scale, y + 16, str(number), anchor="middle", colour=ink_on(colour),
                       within=width)  # fmt: skip
    busy = sum(end - start for *_, start, end in placed[0])
    idle = round(100 * (1 - busy / whole))
    legend(drawn, _LEFT, drawn.height - 18 * lines + 12, [*names.values(), ("idle", "#9a9a9a44")])
    drawn.text(_WIDTH - 12, drawn.height - 6, "the numbers are microbatches", anchor="end")
    drawn.words = (
        f"{'An' if kind[0] == 'i' else 'A'} {kind} pipeline of {several(stages, 'stage')} and "
        f"{several(microbatches, 'microbatch', 'microbatches')}: "
        f"every stage is idle {idle}% of the time."
    )
    return drawn
