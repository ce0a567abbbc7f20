"""Expectations of simulated time: how long a run takes, what overlaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.course.expect.describe import seconds
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report, subject
from fakegpu_lab.course.expect.runs import recording_of, seen_run
from fakegpu_lab.course.expect.values import plain_number
from fakegpu_lab.formatting.units import duration, percent
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.recording_views import spans

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said
    from fakegpu_lab.course.expect.plain_data.conversion import SeenTrace
    from fakegpu_lab.course.expect.runs import Run
    from fakegpu_lab.hardware.time.records import Record

_KINDS = ("h2d", "d2h", "p2p", "copies", "kernels", "collectives", "host")


def _slow(baseline: Run | float | str) -> Any:
    return baseline if isinstance(baseline, (int, float, str)) else recording_of(baseline)


@expectation("trace", trace=recording_of)
def takes(*, at_most: str | float, trace: Run = None, **said: Unpack[Said]) -> bool:
    """Expect host and devices to finish a run within some simulated time: ``"3 ms"``, or seconds."""
    took, limit = seen_run(trace).elapsed, seconds(at_most)
    what = f"it takes at most {duration(limit * 1e9)} of simulated time"
    return report(said, met=took <= limit, what=what, found=duration(took * 1e9))


# The run comes before the baseline, which may be a function that runs now.
@expectation("trace", trace=recording_of, baseline=_slow)
def faster_than(baseline: Run | float | str, *, by: float = 1.0, trace: Run = None, **said: Unpack[Said]) -> bool:
    """Expect a run to be at least `by` times as fast as another: a recording, a function, or a time."""
    fast = seen_run(trace).elapsed
    slow = seconds(baseline) if isinstance(baseline, (int, float, str)) else seen_run(baseline).elapsed
    ratio = slow / fast if fast else float("inf")
    other = subject("the other") if not isinstance(baseline, (int, float, str)) else duration(slow * 1e9)
    what = f"it is at least {by:g} times as fast as {other}"
    measured = f"{ratio:.2f} times: {duration(fast * 1e9)} against {duration(slow * 1e9)}"
    return report(said, met=ratio >= by, what=what, found=measured)


@expectation("trace", trace=recording_of)
def overlaps(
    first: str, second: str, *, at_least: float = 0.5, device: int = 0, trace: Run = None, **said: Unpack[Said]
) -> bool:
    """Expect that two kinds of work run at the same time.

    Parameters
    ----------
    first, second
        ``"h2d"``, ``"d2h"``, ``"p2p"``, ``"copies"``, ``"kernels"``, ``"collectives"``, ``"host"``, or a part of the
        names of kernels.
    at_least
        The share of the shorter one's time in which the other runs, too.
    """
    recording = seen_run(trace)
    times = [spans.of(_records(recording, kind, device)) for kind in (first, second)]
    shorter = min(map(spans.length, times))
    both = spans.shared(*times)
    part = both / shorter if shorter else 0.0
    names = [_kind_name(kind) for kind in (first, second)]
    what = f"{' and '.join(names)} overlap for at least {percent(at_least, 1)} of the shorter's time"
    missing = [name for name, ran in zip(names, times, strict=True) if not ran]
    measured = f"no {' and no '.join(missing)}" if missing else f"{percent(part, 1) if part else 'no overlap'}"
    hint = "Work overlaps on different streams; a copy must come from pinned memory, with non_blocking=True."
    return report(said, met=part >= at_least and not missing, what=what, found=measured, hint=hint)


def _records(recording: SeenTrace, kind: str, device: int) -> Iterable[Record]:
    if kind == "kernels":
        found: list[Any] = recording.kernels
    elif kind == "collectives":
        found = recording.collectives
    elif kind == "host":
        return recording.host_work
    elif kind == "copies":
        found = recording.transfers
    elif kind in _KINDS:
        found = [copy for copy in recording.transfers if copy.kind == kind]
    else:
        found = [kernel for kernel in recording.kernels if kind in kernel.name]
    return [record for record in found if record.device == device]


def _kind_name(kind: str) -> str:
    names = {"h2d": "copies to the device", "d2h": "copies to the host", "p2p": "copies between devices"}
    return names.get(kind, {"host": "host work"}.get(kind, kind if kind in _KINDS else f"`{kind}` kernels"))


@expectation()
def score(
    found: float | None, *, full: float, none: float, unit: str = "", missing: str = "", **said: Unpack[Said]
) -> bool:
    """Give points in proportion to a number: all of them at `full` or better, none at `none` or worse.

    It is met at `full`. An example, for a challenge: ``expect.score(ms, full=3, none=12, unit="ms", points=4)``.

    Parameters
    ----------
    found
        The number; None if there is none to measure, for instance because the answer is wrong. That earns nothing.
    missing
        A sentence that says why there is no number.
    """
    if full == none:
        raise FakeGpuError(f"score(full={full:g}, none={none:g}): the two must differ.")
    what = f"{subject('the figure')} reaches {full:g} {unit}".strip()
    expected = f"{full:g} {unit}".strip()
    found = plain_number(found)
    if found is None:
        return report(said, met=False, what=what, expected=expected, found=missing or "nothing to measure")
    credit = min(max((none - found) / (none - full), 0.0), 1.0)
    digits = next((n for n in range(3, 17) if credit >= 1.0 or float(f"{found:.{n}g}") != full), 17)
    measured = f"{found:.{digits}g} {unit}".strip()  # 170.3 ms of 170 ms is not "170 ms"
    return report(said, met=credit >= 1.0, what=what, expected=expected, found=measured, credit=credit)
