"""What changed, kernel by kernel and copy by copy: one row for everything that is the same in both recordings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fakegpu_lab.comparison.alignment import Match, aligned, canonical, key_of, op_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fakegpu_lab.comparison.sides import Side
    from fakegpu_lab.hardware.time.records import Kernel, Record

_LONGEST = 72
_SAME = 0.02
"""Kernels whose time differs by less are as fast as before."""


@dataclass
class Sum:
    """What one recording did for a row."""

    calls: float = 0
    ns: float = 0
    flops: float = 0
    nbytes: float = 0
    line: str = ""

    def add(self, record: Record, share: float, flops: int, nbytes: int) -> None:
        """Count a record; `share` is 1 divided by the devices and steps that the sum is a mean of."""
        self.calls += share
        self.ns += share * (record.end_ns - record.start_ns)
        self.flops += share * flops
        self.nbytes += share * nbytes
        self.line = self.line or record.line


@dataclass
class Change:
    """A row: a kernel, a copy or a collective, before and after.

    Attributes
    ----------
    name
        The op; if kernels were fused or replaced, the old and the new ones.
    module, phase
        Where in the model (in the first recording that has it), and in which phase; both may be empty.
    before, after
        Calls, times and work, per device, and per step if steps are compared.
    fused
        How many kernels became how many, if several became fewer, or one several; else None.
    same_work
        Whether FLOPs and shapes are the same in both.
    is_kernel
        Whether it is a kernel; else it is a copy or a collective.
    alike
        Whether both are simulated, or neither is. A card often runs several kernels for an op, and a simulated one
        runs one, so the numbers of their calls say nothing.
    """

    name: str
    module: str = ""
    phase: str = ""
    before: Sum = field(default_factory=Sum)
    after: Sum = field(default_factory=Sum)
    fused: tuple[int, int] | None = None
    same_work: bool = True
    is_kernel: bool = True
    alike: bool = True

    @property
    def ns(self) -> float:
        """How much longer it takes now; negative if it takes less time."""
        return self.after.ns - self.before.ns

    @property
    def status(self) -> str:
        """``new``, ``gone``, ``fused``, ``split``, ``more``, ``fewer``, ``slower``, ``faster`` or ``same``.

        ``more`` and ``fewer`` are calls: how long each takes is another question.
        """
        if not self.before.calls:
            return "new"
        if not self.after.calls:
            return "gone"
        if self.fused is not None:
            return "fused" if self.fused[0] > self.fused[1] else "split"
        if self.alike and abs(self.after.calls - self.before.calls) > _SAME * self.before.calls:
            return "more" if self.after.calls > self.before.calls else "fewer"
        if abs(self.ns) <= _SAME * self.before.ns:
            return "same"
        return "slower" if self.ns > 0 else "faster"

    @property
    def other_precision(self) -> bool:
        """Whether the same work moves half or twice the bytes, about: other numbers, as with 2 bytes instead of 4."""
        if not self.same_work or self.fused is not None or not self.before.nbytes or not self.after.nbytes:
            return False
        moved = self.after.nbytes / self.before.nbytes
        return self.before.calls == self.after.calls and (0.2 < moved < 0.75 or 1.33 < moved < 5)


def changes(before: Side, after: Side, *, per_step: bool) -> list[Change]:
    """All rows, those whose time changed most first."""
    pairs = list(zip(before.devices, after.devices, strict=False))
    if len(before.devices) != len(after.devices):
        pairs = pairs[:1]
    shares = tuple(1 / len(pairs) / (side.steps if per_step else 1) for side in (before, after))
    rows: dict[tuple[str, ...], Change] = {}
    for first, second in pairs:
        old, new = before.kernels[first], after.kernels[second]
        for match, counts in _matches(before, after, old, new):
            _add_kernels(rows, old, new, match, tuple(s * c for s, c in zip(shares, counts, strict=True)))
        for side, device, number in ((before, first, 0), (after, second, 1)):
            _add_others(rows, side, device, number, shares[number])
    alike = before.simulated == after.simulated
    if not alike:
        _join_twins(rows)
    for row in rows.values():
        row.alike = alike
    return sorted(rows.values(), key=lambda row: (-abs(row.ns), row.name, row.module, row.phase))


def _join_twins(rows: dict[tuple[str, ...], Change]) -> None:
    """Join what only a card's recording has with what only the simulated one has, if it is the same op elsewhere.

    A copy within a device is a copy of the driver's for a profiler, and the kernel of `copy_` here.
    """
    new = [key for key, row in rows.items() if not row.before.calls]
    for row in [row for row in rows.values() if not row.after.calls]:
        for key in new:
            twin = rows[key]
            elsewhere = row.phase and twin.phase and row.phase != twin.phase
            if canonical(twin.name) == canonical(row.name) and not elsewhere:
                row.after, row.module, row.same_work = twin.after, row.module or twin.module, False
                new.remove(key)
                del rows[key]
                break


def _matches(
    before: Side, after: Side, old: Sequence[Kernel], new: Sequence[Kernel]
) -> Iterator[tuple[Match, tuple[int, int]]]:
    """The matches of two devices, and whether each side of them counts.

    Steps are aligned one by one. If one recording has more of them, its last ones are aligned with the last one of the
    other, whose kernels count once.
    """
    first, second = _cuts(before, old), _cuts(after, new)
    several = min(len(first), len(second)) > 2
    if not several:
        first, second = [0, len(old)], [0, len(new)]
    steps = max(len(first), len(second)) - 1
    known: dict[tuple[object, ...], list[Match]] = {}
    for step in range(steps):
        i, k = min(step, len(first) - 2), min(step, len(second) - 2)
        mine, its = old[first[i] : first[i + 1]], new[second[k] : second[k + 1]]
        sequences = (tuple(map(_seen, mine)), tuple(map(_seen, its)))
        if sequences not in known:
            known[sequences] = aligned(mine, its)
        for match in known[sequences]:
            moved = Match(tuple(first[i] + p for p in match.before), tuple(second[k] + p for p in match.after))
            yield moved, (int(step == i), int(step == k))


def _seen(kernel: Kernel) -> tuple[str, ...]:
    """All of a kernel that decides how it is aligned."""
    return kernel.name, kernel.function, kernel.module, kernel.phase


def _cuts(side: Side, kernels: Sequence[Kernel]) -> list[int]:
    """The steps of a device, which are those of the first if it launched as many kernels."""
    return side.cuts if side.cuts[-1] == len(kernels) else [0, len(kernels)]


def _add_kernels(
    rows: dict[tuple[str, ...], Change],
    old: Sequence[Kernel],
    new: Sequence[Kernel],
    match: Match,
    shares: tuple[float, ...],
) -> None:
    mine, its = [old[place] for place in match.before], [new[place] for place in match.after]
    module, op, phase = key_of((mine or its)[0])
    name = op_of((mine or its)[0])
    fused = None
    key: tuple[str, ...] = ("kernel", module, op, phase)
    if mine and its and (len(mine) > 1 or len(its) > 1 or key_of(its[0])[1] != op):
        name = f"{_listed(mine)} → {_listed(its)}"
        key = (*key, name)
        fused = (len(mine), len(its)) if len(mine) != len(its) else None
    row = rows.setdefault(key, Change(name, (mine or its)[0].module, phase, fused=fused))
    if len(mine) == len(its) == 1:
        row.same_work &= (mine[0].flops, mine[0].shapes) == (its[0].flops, its[0].shapes)
    for total, several, share in ((row.before, mine, shares[0]), (row.after, its, shares[1])):
        for kernel in several:
            if share:
                total.add(kernel, share, kernel.flops, kernel.nbytes)


def _listed(several: Sequence[Kernel]) -> str:
    names = [op_of(kernel).removeprefix("aten::") for kernel in several]
    return " + ".join([*names[:4], f"{len(names) - 4} more"] if len(names) > 5 else names)


def short_name(name: str) -> str:
    """A kernel's name as people read it: at most `_LONGEST` characters, without what all of them have.

    >>> short_name("aten::add_"), short_name("void at::native::reduce_kernel<512>(int)")
    ('add_', 'at::native::reduce_kernel<512>(int)')
    """
    short = name.removeprefix("aten::").removeprefix("void ")
    return short if len(short) <= _LONGEST else f"{short[: _LONGEST - 1]}…"


_DIRECTIONS = {"h2d": "copies to the device", "d2h": "copies to the host", "p2p": "copies between devices"}


def _add_others(rows: dict[tuple[str, ...], Change], side: Side, device: int, number: int, share: float) -> None:
    """Add the copies and collectives of a device, which are the same if they do the same in the same direction."""
    for copy in side.recorded.transfers:
        if device in (copy.device, copy.source, copy.target):
            name = _DIRECTIONS.get(copy.kind, copy.name)
            row = rows.setdefault(("copy", name), Change(name, is_kernel=False))
            (row.before, row.after)[number].add(copy, share, 0, copy.nbytes)
    for part in side.recorded.collectives:
        if part.device == device:
            row = rows.setdefault(("collective", part.operation), Change(part.name, is_kernel=False))
            (row.before, row.after)[number].add(part, share, 0, part.nbytes)
