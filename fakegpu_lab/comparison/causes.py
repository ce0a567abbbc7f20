"""Why one recording is faster than the other: the kinds of time that changed most, and what changed them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.comparison.accounting import KINDS, LAUNCHING
from fakegpu_lab.comparison.changes import short_name
from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.recording_views.labels import place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.comparison.changes import Change
    from fakegpu_lab.comparison.sides import Side

LEAST = 0.15
"""The part of the difference that a cause has at least, to be named."""

_EXPLAINS = 0.3
"""The part of the time of launching that the number of launches explains at least, to be named as its reason."""

_TEXT = 60
"""The most characters of a source line that are shown."""


@dataclass(frozen=True)
class Cause:
    """A reason why one recording takes longer than the other.

    Attributes
    ----------
    kind
        What the time was spent on: a kind of slices (`accounting.KINDS`), or ``"launching"`` for all of
        `accounting.LAUNCHING`.
    reason
        What changed it, in one word: ``"pinned"``, ``"precision"``, ``"fused"``, ``"graph"``, ``"waits"``, …; see
        the functions of this file.
    before_ns, after_ns
        Nanoseconds per device, and per step if steps are compared.
    text
        What it took, and why: a sentence without its end.
    line
        The line that it is about, as ``file:number``; empty if none is known.
    """

    kind: str
    reason: str
    before_ns: float
    after_ns: float
    text: str
    line: str = ""

    @property
    def ns(self) -> float:
        """The difference; negative if it made the second recording faster."""
        return self.after_ns - self.before_ns

    def __str__(self) -> str:
        return f"{self.text}{_at(self.line)}."


@dataclass(frozen=True)
class Pair:
    """Both recordings, and what their numbers are divided by.

    Attributes
    ----------
    before, after
        The recordings.
    changes
        What changed, kernel by kernel.
    per_step
        Whether numbers are those of one step.
    """

    before: Side
    after: Side
    changes: Sequence[Change]
    per_step: bool

    @property
    def mixed(self) -> bool:
        """Whether one is simulated, and the other is not."""
        return self.before.simulated != self.after.simulated

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both."""
        return self.before, self.after

    def share(self, side: Side) -> float:
        """1, or the part of a recording that one step is."""
        return 1 / side.steps if self.per_step else 1.0

    def both(self, number: Callable[[Side], float]) -> tuple[float, float]:
        """A number of both recordings."""
        return self.share(self.before) * number(self.before), self.share(self.after) * number(self.after)

    def counts(self, number: Callable[[Side], float]) -> tuple[int, int]:
        """A count of both, rounded."""
        old, new = self.both(number)
        return round(old), round(new)


def work(before: Side, after: Side) -> tuple[float, float]:
    """How many FLOPs both do, in a way that fusing kernels does not change; 0 if unknown."""
    heavy = before.heavy_flops, after.heavy_flops
    if min(heavy) > 0:
        return heavy
    fused = any(kernel.name.startswith("triton_") for side in (before, after) for kernel in side.recorded.kernels)
    return (0, 0) if fused or max(heavy) > 0 else (before.flops, after.flops)


def causes(pair: Pair) -> list[Cause]:
    """The causes of a difference, the largest first; those that work against it come last.

    Their times add up to the difference of the elapsed times.
    """
    found = []
    for kind in _REASONS:
        kinds = LAUNCHING if kind == "launching" else (kind,)
        old, new = pair.both(lambda side, kinds=kinds: sum(side.means[each] for each in kinds))  # type: ignore[misc]
        if round(old) or round(new):
            found.append(_cause(pair, kind, kinds, old, new))
    whole = sum(one.ns for one in found)
    sign = 1 if whole > 0 else -1
    return sorted(found, key=lambda one: (-sign * one.ns, one.kind))


def _cause(pair: Pair, kind: str, kinds: Sequence[str], old: float, new: float) -> Cause:
    line = _line(pair, kinds, old, new)
    reason, why = _REASONS[kind](pair, new < old)
    what = _WHAT[kind]
    times = f"{what} {_ns(new)} instead of {_ns(old)}"
    return Cause(kind, reason, old, new, f"{times}{': ' if why else ''}{why}", line)


_WHAT = {
    "kernels": "Kernels ran for",
    "collectives": "Collectives that no kernel hides took",
    "rank waits": "Waiting for other ranks took",
    "copies": "Copies that no kernel hides took",
    "earlier": "Work that was launched before the recording took",
    "launching": "Waiting for launches by the host left the GPU idle for",
    "host waits": "Waits of the host left the GPU without work for",
    "host works": "The host did other work, with the GPU idle, for",
    "loading": "Waits for the DataLoader left the GPU without work for",
    "queued": "Queued work waited, with the GPU idle, for",
    "nothing": "At the end, the GPU had nothing more to do for",
}


def _ns(ns: float) -> str:
    return duration(ns) if round(ns) else "0 µs"


def _behind(ns: Sequence[float]) -> str:
    """How much is hidden, now and before."""
    return (
        f"{duration(ns[1]) if round(ns[1]) else 'nothing'} instead of {duration(ns[0]) if round(ns[0]) else 'nothing'}"
    )


def _at(line: str) -> str:
    where = place(line)
    if not where.label:
        return ""
    text = where.text if len(where.text) <= _TEXT else where.text[: _TEXT - 1] + "…"
    return f" ({where.label}{': ' if text else ''}{text})"


def _line(pair: Pair, kinds: Sequence[str], old: float, new: float) -> str:
    """The line that has most of the difference; empty if no line has a third of it."""
    sums: list[dict[str, float]] = []
    for side in pair.sides:
        total: dict[str, float] = defaultdict(float)
        for slices in side.slices.values():
            for one in slices:
                if one.kind in kinds and one.record is not None:
                    total[one.record.line] += one.ns * pair.share(side) / len(side.devices)
        sums.append(total)
    more, less = (sums[0], sums[1]) if new < old else (sums[1], sums[0])
    by_line = {line: ns - less.get(line, 0) for line, ns in more.items() if line}
    if not by_line:
        return ""
    line = max(by_line, key=lambda line: (by_line[line], line))
    return line if by_line[line] > abs(new - old) / 3 else ""


# ------------------------------------------------------------------ reasons

_Reason = tuple[str, str]


def _kernels(pair: Pair, less: bool) -> _Reason:
    """What changed most kernels.

    ``card``, ``simulated``, ``precision``, ``fused``, ``split``, ``gone``, ``new``, ``work`` (of each), ``calls``,
    ``steps``, ``faster`` or ``slower``.
    """
    sign = -1 if less else 1
    other = "card" if pair.before.cards.keys() != pair.after.cards.keys() else ""
    other = "simulated" if pair.mixed else other
    groups: dict[str, list[Change]] = defaultdict(list)
    for row in pair.changes:
        if row.is_kernel and sign * row.ns > 0:
            groups[_of_row(row, other)].append(row)
    if not groups:
        return "", ""
    reason, rows = max(groups.items(), key=lambda item: (sum(abs(row.ns) for row in item[1]), item[0]))
    if reason == "calls" and _other_steps(pair):
        reason = "steps"
    most = _row(rows[0])
    calls = [round(sum(row.before.calls for row in rows)), round(sum(row.after.calls for row in rows))]
    old, new = pair.counts(lambda side: len(side.recorded.kernels) / len(side.devices))
    if reason == "card":
        why = "they run on another card"
    elif reason == "simulated":
        why = "the simulation's model of kernels is off"
    elif reason == "precision":
        moved = rows[0].after.nbytes / rows[0].before.nbytes
        part = "about half" if moved < 1 else f"{moved:.1f} times"
        why = f"the same kernels move {part} the bytes, as in {'lower' if less else 'higher'} precision"
    elif reason in ("fused", "split"):
        why = f"{several(calls[0], 'kernel')} became {calls[1]:,}"
    elif reason in ("gone", "new"):
        why = f"{several(max(calls), 'kernel')} {'is' if max(calls) == 1 else 'are'} {reason}"
    elif reason == "work":
        alike = len(pair.before.devices) == len(pair.after.devices)
        why = f"{'they have' if alike else 'each GPU has'} {'less' if less else 'more'} work"
    elif reason == "calls":
        why = f"{old:,} kernels before, {new:,} after"
    elif reason == "steps":
        steps = f"in {pair.after.steps:,} steps instead of {pair.before.steps:,}"
        return reason, f"{old:,} kernels before, {new:,} with {'more' if less else 'less'} work each after, {steps}"
    else:
        behind = pair.both(lambda side: side.communication_ns - side.means["collectives"])
        beside = ", beside communication" if reason == "slower" and behind[1] > behind[0] else ""
        why = f"the same work is done {'faster' if reason == 'faster' else 'more slowly'}{beside}"
    return reason, f"{why}, most of all {most}"


def _row(row: Change) -> str:
    """Which kernels, where, and their times."""
    name = short_name(row.name).replace(" → ", ", now ")
    phase = f" ({row.phase})" if row.phase else ""
    module = f" in {row.module}" if row.module else ""
    return f"{name}{phase}{module}, {_ns(row.before.ns)} → {_ns(row.after.ns)}"


def _of_row(row: Change, other: str) -> str:
    """What changed it; `other` is what is different about all kernels, or empty."""
    if row.status in ("fused", "split", "new", "gone"):
        return row.status
    if other:
        return other
    if row.status in ("more", "fewer"):
        return "calls"
    if row.other_precision:
        return "precision"
    if not row.same_work:
        return "work"
    return "faster" if row.ns < 0 else "slower"


def _other_steps(pair: Pair) -> bool:
    """Whether the same work is done in another number of steps, as with larger batches."""
    old, new = (side.steps for side in pair.sides)
    return not pair.per_step and old != new and min(old, new) > 1


def _launching(pair: Pair, less: bool) -> _Reason:
    """``graph``, ``fused``, ``steps``, ``launches`` or ``host``."""
    old, new = pair.counts(lambda side: side.launches)
    kernels = pair.counts(lambda side: len(side.recorded.kernels))
    numbers = f"{several(new, 'launch', 'launches')} of kernels instead of {old:,}"
    graphs = pair.both(lambda side: side.in_graphs)
    if abs(graphs[1] - graphs[0]) > 0.1 * max(*kernels, 1):
        which, when = (graphs[1], "launch") if graphs[1] > graphs[0] else (graphs[0], "launched")
        text = f"CUDA graphs {when} {which:,.0f} of the {kernels[graphs[1] > graphs[0]]:,} kernels"
        return "graph", f"{numbers}, because {text}" if (new < old) == (graphs[1] > graphs[0]) else text
    took = pair.both(lambda side: sum(side.means[kind] for kind in LAUNCHING))
    by_number = took[0] * new / max(old, 1) - took[0]  # how much less or more, if each launch took as long as before
    if abs(new - old) > 0.1 * old and by_number / ((took[1] - took[0]) or 1) > _EXPLAINS:
        fused = [row for row in pair.changes if row.status in ("fused", "split")]
        merged = sum(abs(row.before.calls - row.after.calls) for row in fused)
        if merged >= 0.5 * abs(kernels[1] - kernels[0]) / len(pair.before.devices):
            return "fused", f"{numbers}, because {fused[0].name.replace(' → ', ' became ')}"
        if _other_steps(pair):
            return "steps", f"{numbers}, in {pair.after.steps:,} steps instead of {pair.before.steps:,}"
        return "launches", numbers
    names = [side.host for side in pair.sides]
    if names[0] != names[1] and not pair.mixed:
        return "host", f"another host, {names[1]} instead of {names[0]}"
    parts = {kind: pair.both(lambda side, kind=kind: side.means[kind]) for kind in LAUNCHING}  # type: ignore[misc]
    most = max(parts, key=lambda kind: abs(parts[kind][1] - parts[kind][0]))
    where = {"python": "Python", "dispatch": "PyTorch's C++", "launch": "the launches themselves"}[most]
    number = f"about as many launches ({new:,})" if abs(new - old) <= 0.1 * old else numbers
    what = f"most of all in {where}, {' → '.join(map(_ns, parts[most]))}"
    return "host", what if pair.mixed else f"{what}; {number}"


def _copies(pair: Pair, less: bool) -> _Reason:
    """``pinned``, ``pageable``, ``bytes``, ``calls``, ``hidden``, ``exposed`` or empty."""
    kind = max(_DIRECTIONS, key=lambda kind: abs(_alone(pair, kind)[1] - _alone(pair, kind)[0]))
    alone = _alone(pair, kind)
    counts = pair.counts(lambda side: len(side.copied[kind]))
    nbytes, pageable, took = (
        pair.both(number)
        for number in (
            lambda side: sum(copy.nbytes for copy in side.copied[kind]),
            lambda side: sum(copy.nbytes for copy in side.copied[kind] if copy.pinned is False),
            lambda side: sum(copy.end_ns - copy.start_ns for copy in side.copied[kind]) / len(side.devices),
        )
    )
    way = "come from" if kind == "h2d" else "go to"
    behind = [max(whole - part, 0) for whole, part in zip(took, alone, strict=True)]
    if abs(nbytes[1] - nbytes[0]) > 0.1 * max(nbytes):
        return "bytes", f"{size(round(nbytes[1]))} {_DIRECTIONS[kind]} instead of {size(round(nbytes[0]))}"
    if less and pageable[1] < 0.5 * pageable[0]:
        return "pinned", f"they {way} pinned instead of pageable memory"
    if not less and pageable[0] < 0.5 * pageable[1]:
        return "pageable", f"they {way} pageable instead of pinned memory"
    if abs(behind[1] - behind[0]) > 0.5 * abs(alone[1] - alone[0]):
        hidden = f"{_behind(behind)} of copying runs behind kernels"
        return ("hidden" if less else "exposed"), hidden
    if counts[0] != counts[1]:
        return "calls", f"{several(counts[1], 'copy', 'copies')} {_DIRECTIONS[kind]} instead of {counts[0]:,}"
    return "", ""


_DIRECTIONS = {"h2d": "to the GPU", "d2h": "to the host", "p2p": "between GPUs"}


def _alone(pair: Pair, kind: str) -> tuple[float, float]:
    """How long copies of a kind took that nothing hides."""
    return pair.both(
        lambda side: (
            sum(
                one.ns
                for slices in side.slices.values()
                for one in slices
                if one.kind == "copies" and getattr(one.record, "kind", "") == kind
            )
            / len(side.devices)
        )
    )


def _collectives(pair: Pair, less: bool) -> _Reason:
    """``hidden``, ``exposed``, ``bytes``, ``buckets``, ``faster`` or ``slower``."""
    alone = pair.both(lambda side: side.means["collectives"])
    whole = pair.both(lambda side: side.communication_ns)
    behind = [all_ - part for all_, part in zip(whole, alone, strict=True)]
    parts = [
        sum(part.nbytes for part in side.recorded.collectives) * pair.share(side) / len(side.devices)
        for side in pair.sides
    ]
    counts = pair.counts(lambda side: len(side.recorded.collectives) / len(side.devices))
    number = f"{several(counts[1], 'collective')} instead of {counts[0]:,}" if counts[0] != counts[1] else ""
    if abs(parts[1] - parts[0]) > 0.1 * max(parts):
        return "bytes", f"{size(round(parts[1]))} per rank instead of {size(round(parts[0]))}"
    if abs(behind[1] - behind[0]) > 0.5 * abs(alone[1] - alone[0]):
        hidden = f"{_behind(behind)} of communication runs behind kernels"
        return ("hidden" if less else "exposed"), f"{hidden}{', in ' + number if number else ''}"
    if number:
        return "buckets", number
    return ("faster" if less else "slower"), ""


def _host_waits(pair: Pair, less: bool) -> _Reason:
    """``waits`` or empty."""
    old, new = pair.counts(lambda side: len(side.recorded.waits) / len(side.devices))
    if old == new:
        return "", f"{several(new, 'wait')} in both" if new else ""
    return "waits", f"the host waited {several(new, 'time')} instead of {old:,}"


def _host_works(pair: Pair, less: bool) -> _Reason:
    """The name of the work that has most of the difference."""
    sums: list[Counter[str]] = []
    for side in pair.sides:
        total: Counter[str] = Counter()
        for slices in side.slices.values():
            for one in slices:
                if one.kind == "host works" and one.record is not None:
                    total[one.record.name] += round(one.ns * pair.share(side) / len(side.devices))
        sums.append(total)
    more, other = (sums[0], sums[1]) if less else (sums[1], sums[0])
    if not more:
        return "", ""
    name = max(more, key=lambda name: (more[name] - other[name], name))
    return "work", f"{name}, {_ns(sums[0][name])} → {_ns(sums[1][name])}"


def _earlier(pair: Pair, less: bool) -> _Reason:
    return "synchronize", "call torch.cuda.synchronize() before you record"


def _nothing(pair: Pair, less: bool) -> _Reason:
    return "", ""


_REASONS: dict[str, Callable[[Pair, bool], _Reason]] = {
    "kernels": _kernels, "collectives": _collectives, "rank waits": _nothing, "copies": _copies, "earlier": _earlier,
    "launching": _launching, "host waits": _host_waits, "host works": _host_works, "loading": _nothing,
    "queued": _nothing, "nothing": _nothing,
}  # fmt: skip
assert set(KINDS) - set(LAUNCHING) | {"launching"} == set(_REASONS) == set(_WHAT)
