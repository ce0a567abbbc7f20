"""Drawings of several ranks: a ring all-reduce step by step, and a tensor's shards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.drawing import PALETTE, Drawing
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Sequence

_CIRCLE = 4
"""The most ranks that a circle has room for."""

_PANEL, _RADIUS, _PART = 186.0, 58.0, 9.0
"""Pixels: a panel with a circle, the circle's radius, the width of a part."""

_ROW, _NAME, _WIDE_PART = 34.0, 50.0, 15.0
"""Pixels, in rows: from one rank to the next, the room for a rank's name, the width of a part."""


def ring_steps(ranks: int) -> list[tuple[list[list[int]], list[int]]]:
    """A ring all-reduce: for each step, how many ranks' numbers are in each rank's chunks, and which chunk it sent.

    First come the steps of the reduce-scatter, in which a chunk is added to what the next rank has; then those of the
    all-gather, in which it replaces it (Patarasuk and Yuan, 2009; NCCL's "ring").
    """
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    steps = [([[1] * ranks for _ in range(ranks)], list[int]())]
    for step in range(2 * (ranks - 1)):
        reducing = step < ranks - 1
        turn = step if reducing else step - (ranks - 1)
        sent = [(rank - turn + (0 if reducing else 1)) % ranks for rank in range(ranks)]
        moved = [set(held[rank][sent[rank]]) for rank in range(ranks)]
        for rank in range(ranks):
            held[(rank + 1) % ranks][sent[rank]] |= moved[rank]
        steps.append(([[len(chunk) for chunk in chunks] for chunks in held], sent))
    return steps


def ring(ranks: int = 4, after: int | None = None) -> Drawing:
    """Draw a ring all-reduce step by step: each rank's parts fill up as the others' numbers are added.

    Up to four ranks stand in a circle, more of them in rows, one below the other.

    Parameters
    ----------
    ranks
        2 to 8.
    after
        The number of steps after which the state is drawn, 0 for the beginning. By default, all states are drawn.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import ring
    >>> print(ring(4))
    A ring all-reduce of 4 ranks: 3 steps of reduce-scatter, then 3 of all-gather. In each, a rank sends 1/4.
    """
    if not 2 <= ranks <= 8:
        raise FakeGpuError(f"ring({ranks}): a ring that can be drawn has 2 to 8 ranks.")
    steps = ring_steps(ranks)
    if after is not None and not 0 <= after < len(steps):
        raise FakeGpuError(f"ring({ranks}, after={after}): the ring has {len(steps) - 1} steps: 0 to {len(steps) - 1}.")
    shown = range(len(steps)) if after is None else [after]
    circle = ranks <= _CIRCLE
    width, height = _PANEL, _PANEL if circle else ranks * _ROW + 34
    wide = min(len(shown), 3)
    drawn = Drawing(3 * width + 8, (height + 14) * math.ceil(len(shown) / wide) + 42)
    for place, number in enumerate(shown):
        corner = (place % wide * width + 4, place // wide * (height + 14) + 18)
        title = "at first"
        if number:
            title = f"step {number - 1}: reduce-scatter" if number < ranks else f"step {number - ranks}: all-gather"
        drawn.text(corner[0] + width / 2, corner[1] + 2, title, anchor="middle")
        (_circle if circle else _rows)(drawn, corner, ranks, *steps[number])
    arrow = "an arrow names the one that was sent" if circle else "an arrow ends where a part arrived"
    drawn.text(8, drawn.height - 24, f"Parts 0 to {ranks - 1}, from left to right; {arrow}.")
    drawn.text(
        8, drawn.height - 8, "The height of a part shows how many ranks it already sums. Green: the complete sum."
    )
    drawn.words = (
        f"A ring all-reduce of {ranks} ranks: {several(ranks - 1, 'step')} of reduce-scatter, then {ranks - 1} of "
        f"all-gather. In each, a rank sends 1/{ranks}."
    )
    return drawn


def _circle(drawn: Drawing, corner: tuple[float, float], ranks: int, held: list[list[int]], sent: list[int]) -> None:
    """The ranks around a circle, each with its parts; arrows name the part that was sent."""
    x0, y0 = corner[0] + _PANEL / 2, corner[1] + _PANEL / 2
    angles = [2 * math.pi * rank / ranks - math.pi / 2 for rank in range(ranks)]
    spots = [(x0 + _RADIUS * 1.12 * math.cos(a), y0 + _RADIUS * math.sin(a)) for a in angles]
    for rank, part in enumerate(sent):
        (xa, ya), (xb, yb) = spots[rank], spots[(rank + 1) % ranks]
        bend = 0.36 if ranks == 2 else 0.38  # beside the names of the ranks
        drawn.arrow((xa + (xb - xa) * bend, ya + (yb - ya) * bend), (xb - (xb - xa) * bend, yb - (yb - ya) * bend))
        middle = ((xa + xb) / 2, (ya + yb) / 2)
        away = 0.24 if ranks > 2 else 0
        text = (middle[0] + (x0 - middle[0]) * away, middle[1] + (y0 - middle[1]) * away + 4 - (8 if ranks == 2 else 0))
        drawn.text(*text, str(part), anchor="middle")
    for rank, (x, y) in enumerate(spots):
        _parts(drawn, (x - ranks * _PART / 2, y - 12), _PART, rank, held[rank])
        drawn.text(x, y + 24, f"rank {rank}", anchor="middle")


def _rows(drawn: Drawing, corner: tuple[float, float], ranks: int, held: list[list[int]], sent: list[int]) -> None:
    """The ranks one below the other; an arrow ends at the part that arrived, and the last rank sends to the first."""
    x0, y0 = corner[0] + _NAME, corner[1] + 18
    for rank, parts in enumerate(held):
        y = y0 + rank * _ROW
        drawn.text(x0 - 6, y + 16, f"rank {rank}", anchor="end")
        _parts(drawn, (x0, y), _WIDE_PART, rank, parts)
        if sent:
            x = x0 + (sent[rank - 1] + 0.5) * _WIDE_PART
            drawn.arrow((x, y - _ROW / 4 - 2), (x, y + 7))


def _parts(drawn: Drawing, corner: tuple[float, float], width: float, rank: int, held: list[int]) -> None:
    """A rank's parts side by side, each as high as the share of ranks that it sums."""
    for part, count in enumerate(held):
        x, y, ranks = corner[0] + part * width, corner[1], len(held)
        hint = f"rank {rank}, part {part}: the sum of {count} of {ranks}"
        drawn.rect(x, y, width, 24, "#9a9a9a", opacity=0.12, hint=hint)
        color = "#009e73" if count == ranks else "#0072b2"
        drawn.rect(x, y + 24 - 24 * count / ranks, width, 24 * count / ranks, color, opacity=0.85, hint=hint)


def shards(shape: Sequence[int], ranks: int, dim: int = 0) -> Drawing:
    """Draw how a matrix is split over ranks along a dimension, in chunks as ``torch.chunk`` makes them.

    Parameters
    ----------
    shape
        Two numbers; the drawing has a box for each element up to 24 × 24, and beyond that only the parts.
    ranks
        How many ranks share it, up to 16.
    dim
        0: each rank has some of the rows; 1: some of the columns.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import shards
    >>> print(shards((6, 4), 4))
    A 6×4 tensor, split over 4 ranks by its rows: rank 0 has 2×4, rank 1 has 2×4, rank 2 has 2×4, rank 3 has nothing.
    """
    if len(shape) != 2 or min(shape) < 1 or dim not in (0, 1) or not 1 <= ranks <= 16:
        raise FakeGpuError(
            f"shards({tuple(shape)}, {ranks}, dim={dim}): it takes a shape of two numbers, 1 to 16 ranks, and dim 0 "
            "or 1."
        )
    rows, columns = shape
    step = math.ceil(shape[dim] / ranks)
    bounds = [(min(rank * step, shape[dim]), min((rank + 1) * step, shape[dim])) for rank in range(ranks)]
    box = min(26.0, 300 / max(rows, columns))
    width, height = columns * box, rows * box
    drawn = Drawing(max(width + 130, 60.0 * ranks if dim else 0, 200), height + 52)
    told = []
    for rank, (first, last) in enumerate(bounds):
        part = (last - first, columns) if dim == 0 else (rows, last - first)
        told.append(f"rank {rank} has " + (f"{part[0]}×{part[1]}" if last > first else "nothing"))
        if last == first:
            continue
        x, y = (8.0, 30 + first * box) if dim == 0 else (8 + first * box, 30.0)
        size = (width, (last - first) * box) if dim == 0 else ((last - first) * box, height)
        drawn.rect(x, y, *size, PALETTE[rank % len(PALETTE)], opacity=0.75, hint=told[-1])
        if dim == 0:
            drawn.text(width + 18, y + size[1] / 2 + 4, f"rank {rank}: {part[0]}×{part[1]}")
        else:
            drawn.text(x + size[0] / 2, height + 46, f"rank {rank}", anchor="middle", within=size[0] + 8)
    if max(rows, columns) <= 24:
        for row in range(1, rows):
            drawn.line((8, 30 + row * box), (8 + width, 30 + row * box), dashed=True)
        for column in range(1, columns):
            drawn.line((8 + column * box, 30), (8 + column * box, 30 + height), dashed=True)
    drawn.text(8, 20, f"{rows}×{columns}")
    by = "rows" if dim == 0 else "columns"
    drawn.words = f"A {rows}×{columns} tensor, split over {several(ranks, 'rank')} by its {by}: {', '.join(told)}."
    return drawn
