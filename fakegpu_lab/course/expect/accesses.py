"""Expectations of kernels that the student wrote: bytes that they move, coalescing, bank conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report
from fakegpu_lab.course.expect.runs import recording_of, seen_run
from fakegpu_lab.formatting.units import several, size
from fakegpu_lab.hardware.catalogue.sizes import parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said
    from fakegpu_lab.course.expect.runs import Run
    from fakegpu_lab.hardware.time.access import LineAccess
    from fakegpu_lab.hardware.time.records import Kernel

SECTOR = 32
Where = Literal["DRAM", "L2", "threads"]
_PLACES = {
    "DRAM": "move {} between L2 and DRAM",
    "L2": "move {} between L1 and L2",
    "threads": "load and store {} of global memory",
}


@expectation("trace", trace=recording_of)
def moves(
    *,
    at_most: int | str | None = None,
    at_least: int | str | None = None,
    where: Where = "DRAM",
    named: str = "",
    trace: Run = None,
    **said: Unpack[Said],
) -> bool:
    """Expect that all kernels of a run together move at most, or at least, a number of bytes.

    Parameters
    ----------
    where
        ``"DRAM"`` counts all kernels, including torch's own; ``"L2"`` (between L1 and L2) and ``"threads"`` (what
        threads request) know only kernels that the student wrote.
    named
        Only kernels with this in their name.
    """
    if where not in _PLACES:
        raise FakeGpuError(f"where={where!r}: it can be {', '.join(map(repr, _PLACES))}.")
    every: list[Any] = seen_run(trace).kernels
    ran = [kernel for kernel in every if named in kernel.name and (where == "DRAM" or kernel.access is not None)]
    moved = sum(_bytes(kernel, where) for kernel in ran)
    most, least = (None if limit is None else parse_size(limit) for limit in (at_most, at_least))
    met = (most is None or moved <= most) and (least is None or moved >= least)
    named_limits = (("at most", most), ("at least", least))
    limits = " and ".join(f"{word} {size(limit)}" for word, limit in named_limits if limit is not None)
    what = f"the kernels {_PLACES[where].format(limits or 'any number of bytes')}"
    found = size(moved) if ran else _none(every, named)
    if not met and found in (size(limit) for limit in (most, least) if limit is not None):
        found = f"{moved:,} bytes"  # rounded, it is the limit
    if len(ran) > 1:
        first = max(ran, key=lambda kernel: _bytes(kernel, where))
        found += f" in {len(ran):,} kernels, most in {first.name}: {size(_bytes(first, where))}"
    return report(said, met=met and bool(ran), what=what, found=found)


def _bytes(kernel: Kernel, where: Where) -> int:
    access = kernel.access
    if where == "DRAM" or access is None:
        return kernel.nbytes
    return access.l2_bytes if where == "L2" else access.bytes_loaded + access.bytes_stored


@expectation("trace", trace=recording_of)
def coalesced(
    *, at_most: float = 1.25, sectors: float | None = None, named: str = "", trace: Run = None, **said: Unpack[Said]
) -> bool:
    """Expect the requests of warps to global memory to be coalesced, in each line of the student's kernels.

    Parameters
    ----------
    at_most
        The most sectors that a request may touch, as a multiple of those that its bytes fill: 1.25 allows 32 floats to
        begin within a sector. Lanes that read the same bytes need fewer.
    sectors
        In place of that, the most sectors for each request: 4 for 32 floats side by side.
    named
        Only kernels with this in their name.
    """
    every: list[Any] = seen_run(trace).kernels
    lines = _lines(every, named, "global")
    worst = max(lines, key=lambda line: _excess(line, sectors), default=None)
    limit = (
        "no more sectors than its bytes fill" if sectors is None else f"at most {sectors:g} sectors of {SECTOR} bytes"
    )
    what = f"each request of a warp touches {limit}"
    if worst is None:
        return report(said, met=False, what=what, found=_none(every, named))
    met = _excess(worst, sectors) <= (at_most if sectors is None else 1.0) + 1e-9
    each = worst.nbytes / worst.requests
    found = (
        f"a {worst.kind} touches {_several(worst.sectors_per_request, 'sector')} for each request; the "
        f"{each:.3g} bytes that it requests fill {_several(-(-each // SECTOR), 'sector')}"
    )
    hint = "Neighboring threads (threadIdx.x, or tl.arange) should access neighboring elements: the last dimension."
    return report(said, met=met, what=what, found=found, line=_line(worst) if not met else "", hint=hint)


def _excess(line: LineAccess, sectors: float | None) -> float:
    """How many times the sectors that it may touch a line touches."""
    if not line.requests:
        return 0.0
    may = sectors if sectors is not None else -(-line.nbytes / line.requests // SECTOR)
    return line.sectors_per_request / max(may, 1e-9)


@expectation("trace", trace=recording_of)
def no_bank_conflicts(*, at_most: int = 0, named: str = "", trace: Run = None, **said: Unpack[Said]) -> bool:
    """Expect that at most `at_most` cycles are lost in bank conflicts, and that shared memory is used at all.

    Parameters
    ----------
    named
        Only kernels with this in their name.
    """
    every: list[Any] = seen_run(trace).kernels
    lines = _lines(every, named, "shared")
    lost = sum(line.conflicts for line in lines)
    worst = max(lines, key=lambda line: line.conflicts, default=None)
    what = (
        "no cycle is lost in bank conflicts"
        if not at_most
        else f"at most {at_most:,} cycles are lost in bank conflicts"
    )
    if worst is None:
        missing = _none(every, named) if not _lines(every, named, "global") else "the kernel uses no shared memory"
        return report(said, met=False, what=what, found=missing)
    found = f"{several(lost, 'cycle')} lost"
    if lost:
        found += f", most by a {worst.kind}: each of its requests takes {_several(worst.ways, 'cycle')}"
    hint = (
        "Threads that access different words of one bank wait for each other: another number of columns often helps, "
        "such as one more."
    )
    met = lost <= at_most
    return report(said, met=met, what=what, found=found, line=_line(worst) if not met else "", hint=hint)


def _lines(kernels: Sequence[Kernel], named: str, space: str) -> list[LineAccess]:
    """The lines of the student's kernels that access global or shared memory."""
    accesses = [kernel.access for kernel in kernels if named in kernel.name]
    return [line for access in accesses if access is not None for line in access.lines if line.space == space]


def _none(kernels: Sequence[Kernel], named: str) -> str:
    """What to say where there is nothing to look at."""
    others = sorted({kernel.name for kernel in kernels})
    wanted = f"no kernel named {named}" if named else "no kernel of your own" if others else "no kernel"
    return f"{wanted} was launched" + (f", only {', '.join(others[:4])}" if others else "")


def _line(line: LineAccess) -> str:
    return f"{line.line[0]}:{line.line[1]}"


def _several(count: float, noun: str) -> str:
    """A number that need not be whole, with its noun."""
    return f"{count:.3g} {noun if count == 1 else noun + 's'}"
