"""The tables of a comparison: where the time went, by device, what changed, and totals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.comparison.accounting import KINDS
from fakegpu_lab.comparison.changes import short_name
from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import amount, duration, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.recording_views.recorded import note_of_dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.comparison.causes import Pair
    from fakegpu_lab.comparison.sides import Side


_STATUS = {"more": "more calls", "fewer": "fewer calls"}


def time(pair: Pair) -> Table:
    """Where the time went, in both; what neither has is left out."""
    rows = []
    for kind, name in KINDS.items():
        old, new = pair.both(lambda side, kind=kind: side.means[kind])  # type: ignore[misc]
        if round(old) or round(new):
            rows.append(_row(name, old, new))
    rows.append(_row("elapsed", *pair.both(lambda side: side.elapsed_ns)))
    notes = [note for side in pair.sides if (note := note_of_dropped(side.recorded))]
    notes += [
        f"In {side.label}, what CUDA uses for the first time took the host {duration(side.first_use_ns)} more, which "
        "its elapsed time leaves out."
        for side in pair.sides
        if side.first_use_ns
    ]
    several = max(len(side.devices) for side in pair.sides) > 1
    title = f"Where the time went{', mean of the GPUs' if several else ''}{', per step' if pair.per_step else ''}"
    return Table(
        ["time of the GPU", *_labels(pair), "difference", "%"], rows, title, frozenset({1, 2, 3, 4}), "\n".join(notes)
    )


def by_device(pair: Pair) -> Table:
    """One row for each device, with its times before and after."""
    groups = {
        "kernels": ("kernels",), "collectives": ("collectives",), "rank waits": ("rank waits",), "copies": ("copies",),
        "earlier work": ("earlier",),
        "idle": [kind for kind, name in KINDS.items() if name.startswith("idle")],
    }  # fmt: skip
    rows = []
    for device in sorted({*pair.before.devices, *pair.after.devices}):
        cells = []
        for kinds in groups.values():
            both = [
                duration(sum(side.sums[device][kind] for kind in kinds) * pair.share(side))
                if device in side.sums else "–"
                for side in pair.sides
            ]  # fmt: skip
            cells.append(" → ".join(both) if set(both) != {"0"} else "0")
        rows.append([f"cuda:{device}", *cells])
    kept = [place for place in range(len(rows[0])) if any(row[place] != "0" for row in rows)]
    rows = [[row[place] for place in kept] for row in rows]
    headers = [["GPU", *groups][place] for place in kept]
    title = f"Each GPU{', per step' if pair.per_step else ''}: {pair.before.label} → {pair.after.label}"
    return Table(headers, rows, title, frozenset(range(1, len(headers))))


def kernels(pair: Pair, top: int | None = 10) -> Table:
    """What changed: the rows whose time changed most; what is the same is left out."""
    if top is not None and top < 1:
        raise FakeGpuError(f"top must be at least 1, or None for all rows, and is {top}.")
    changed = [row for row in pair.changes if row.status != "same"]
    rows = [
        [
            short_name(row.name), row.phase, _STATUS.get(row.status, row.status),
            " → ".join(dict.fromkeys((_count(row.before.calls), _count(row.after.calls)))),
            *_times(row.before.ns, row.after.ns), row.module or place(row.before.line or row.after.line).label,
        ]
        for row in changed[:top]
    ]  # fmt: skip
    if rest := changed[len(rows) :]:
        both = sum(row.before.ns for row in rest), sum(row.after.ns for row in rest)
        rows.append([f"({len(rest):,} more)", "", "", "", *_times(*both), ""])
    title = f"Kernels and copies whose time changed{', per step' if pair.per_step else ''}"
    # A card often runs several kernels for an op, and a simulated one runs one: those are no calls.
    number = "calls" if not pair.mixed else "kernels"
    headers = ["kernel, copy", "phase", "change", number, *_labels(pair), "difference", "%", "module or line"]
    kept = [n for n in range(len(headers)) if headers[n] not in ("phase", "module or line") or any(r[n] for r in rows)]
    right = frozenset(kept.index(n) for n in range(3, 8))
    return Table([headers[n] for n in kept], [[row[n] for n in kept] for row in rows], title, right)


def totals(pair: Pair) -> Table:
    """Memory, bytes and counts."""
    rows = []

    def add(
        name: str, number: Callable[[Side], float | None], written: Callable[[float], str], *, whole: bool = False
    ) -> None:
        both = [number(side) for side in pair.sides]
        if not any(both):
            return
        old, new = (
            None if one is None else one * (1 if whole else pair.share(side))
            for one, side in zip(both, pair.sides, strict=True)
        )
        cells = ["–" if one is None else written(one) for one in (old, new)]
        if old is None or new is None:
            rows.append([name, *cells, "", ""])
            return
        sign = "" if cells[0] == cells[1] else "+" if new > old else "−"
        rows.append([name, *cells, sign + written(abs(new - old)), _percent(old, new)])

    add("peak memory of tensors", lambda side: side.peak_memory, _size, whole=True)
    for kind, name in (("h2d", "copied to GPUs"), ("d2h", "copied to the host"), ("p2p", "copied between GPUs")):
        add(name, lambda side, kind=kind: sum(c.nbytes for c in side.copied[kind]), _size)  # type: ignore[misc]
    add("in collectives", lambda side: sum(part.nbytes for part in side.recorded.collectives), _size)
    add("arithmetic", lambda side: side.all_flops, lambda n: amount(n, "FLOP"))
    add("kernels", lambda side: len(side.recorded.kernels), _count)
    add("launches of kernels", lambda side: side.launches, _count)
    add("copies", lambda side: len(side.recorded.transfers), _count)
    add("collectives, counted on each rank", lambda side: len(side.recorded.collectives), _count)
    add("waits of the host", lambda side: len(side.recorded.waits), _count)
    add("steps", lambda side: side.steps if side.steps > 1 else 0, _count, whole=True)
    title = f"Totals{', per step' if pair.per_step else ''}"
    return Table(["", *_labels(pair), "difference", "%"], rows, title, frozenset({1, 2, 3, 4}))


def _labels(pair: Pair) -> Sequence[str]:
    return pair.before.label, pair.after.label


def _row(name: str, old: float, new: float) -> list[str]:
    return [name, *_times(old, new)]


def _times(old: float, new: float) -> list[str]:
    return [duration(old), duration(new), _difference(new - old), _percent(old, new)]


def _difference(ns: float) -> str:
    return f"{'+' if ns > 0 else '−'}{duration(abs(ns))}" if round(ns) else "0"


def _percent(old: float, new: float) -> str:
    """How much more, in percent; empty where there was nothing before.

    >>> _percent(100, 150), _percent(100, 50), _percent(0, 1), _percent(3, 3), _percent(1000, 1), _percent(10**6, 1)
    ('+50%', '−50%', '', '0%', '−99.9%', '−99.9%')
    """
    if not old:
        return ""
    if new and new < 0.005 * old:
        return f"−{min(99.9, 100 - 100 * new / old):.1f}%"
    percent = round(100 * (new - old) / old)
    return f"{'+' if percent > 0 else '−' if percent < 0 else ''}{abs(percent):,}%"


def _size(nbytes: float) -> str:
    return size(round(nbytes))


def _count(number: float) -> str:
    """A count, which is a mean of steps or devices: with one decimal if it needs one.

    >>> _count(4.0), _count(2.5), _count(1200)
    ('4', '2.5', '1,200')
    """
    return f"{number:,.0f}" if abs(number - round(number)) < 0.05 else f"{number:,.1f}"
