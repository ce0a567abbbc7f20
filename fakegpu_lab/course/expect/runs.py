"""Expectations of what a run did on the machine: copies, kernels, memory, waits, races."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

from fakegpu_lab import trace as traces
from fakegpu_lab.course.expect.outcome import looking, report, student_line, subject
from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.catalogue.sizes import parse_size
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said
    from fakegpu_lab.hardware.time.records import Record
    from fakegpu_lab.trace import Trace

    Run = Trace | Callable[[], Any] | None
    """A recording; a function to run and record; None: what ran last."""

T = TypeVar("T")

_COPIES = {"h2d": "host to device", "d2h": "device to host", "p2p": "between devices"}


def run(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Run a function and record it: what later parts of the check look at. Returns what the function returns.

    The clock goes on until the devices are done, as after ``torch.cuda.synchronize()``, before it runs.
    """
    _settle()
    look = looking()
    try:
        with traces.record() as trace:
            returned = function(*arguments, **named)
    except BaseException as error:
        if look is not None:
            look.failed = error
        raise
    if look is not None:
        look.trace, look.failed = trace, None
    return returned


def _settle() -> None:
    """Let what was launched before come to its end, so that it does not count for what comes now."""
    import torch

    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def looked_at(trace: Run) -> Trace:
    """The recording that an expectation is about.

    Raises
    ------
    FakeGpuError
        There is none.
    """
    if isinstance(trace, traces.Trace):
        return trace
    if callable(trace):
        _settle()
        with traces.record() as made:
            trace()
        return made
    look = looking()
    if look is not None and look.failed is not None:
        raise look.failed  # what comes after a run that failed fails with it
    if look is not None and look.trace is not None:
        return look.trace
    if look is not None and look.attempt is not None and look.attempt.error:
        raise FakeGpuError("the exercise's cell did not come to its end: mend its error first")
    if look is not None and look.attempt is not None and look.attempt.trace is not None:
        return look.attempt.trace
    raise FakeGpuError("There is no recording to look at: run the exercise's cell again, from its %%exercise line on.")


def commonest_line(records: Sequence[Record]) -> str:
    """The line that most of some records come from."""
    lines = [record.line for record in records if record.line]
    return max(lines, key=lines.count) if lines else ""


def transfers(
    *,
    h2d: int | None = None,
    d2h: int | None = None,
    p2p: int | None = None,
    h2d_at_most: int | None = None,
    d2h_at_most: int | None = None,
    p2p_at_most: int | None = None,
    h2d_at_least: int | None = None,
    d2h_at_least: int | None = None,
    p2p_at_least: int | None = None,
    h2d_bytes_at_most: int | str | None = None,
    d2h_bytes_at_most: int | str | None = None,
    p2p_bytes_at_most: int | str | None = None,
    pinned: bool | None = None,
    trace: Run = None,
    **said: Unpack[Said],
) -> bool:
    """Expect copies: exactly so many, at most, at least; so many bytes at most; all from or to pinned memory."""
    wishes = {
        "h2d": (h2d, h2d_at_most, h2d_at_least, h2d_bytes_at_most),
        "d2h": (d2h, d2h_at_most, d2h_at_least, d2h_bytes_at_most),
        "p2p": (p2p, p2p_at_most, p2p_at_least, p2p_bytes_at_most),
    }
    every = looked_at(trace).transfers
    wanted, got, line = [], [], ""
    met = True
    for kind, (exactly, most, least, most_bytes) in wishes.items():
        copies = [copy for copy in every if copy.kind == kind]
        nbytes = sum(copy.nbytes for copy in copies)
        limit = parse_size(most_bytes) if most_bytes is not None else None
        asked = [
            *([f"{exactly}"] if exactly is not None else []),
            *([f"at most {most}"] if most is not None else []),
            *([f"at least {least}"] if least is not None else []),
            *([f"at most {size(limit)}"] if limit is not None else []),
        ]
        if not asked:
            continue
        count = len(copies)
        kept = (
            (exactly is None or count == exactly)
            and (most is None or count <= most)
            and (least is None or count >= least)
            and (limit is None or nbytes <= limit)
        )
        wanted.append(f"{' and '.join(asked)} from {_COPIES[kind]}".replace("from between", "between"))
        got.append(f"{several(count, 'copy', 'copies')} ({size(nbytes)}) {_COPIES[kind]}")
        if not kept:
            met = False
            line = line or commonest_line(copies)
    if pinned is not None:
        others = [copy for copy in every if copy.pinned is not None and copy.pinned is not pinned]
        wanted.append(f"all {'pinned' if pinned else 'pageable'} on the host's side")
        got.append(f"{several(len(others), 'copy', 'copies')} {'pageable' if pinned else 'pinned'}")
        met, line = met and not others, line or commonest_line(others)
    what = f"copies: {', '.join(wanted) or 'any'}"
    return report(said, met=met, what=what, found=", ".join(got), line=line)


def kernels(
    *,
    at_most: int | None = None,
    at_least: int | None = None,
    named: str = "",
    device: int | None = None,
    trace: Run = None,
    **said: Unpack[Said],
) -> bool:
    """Expect a number of kernels: of all, of those with `named` in their name (``"linear"``), on one device."""
    every = looked_at(trace).kernels
    found = [one for one in every if named in one.name and (device is None or one.device == device)]
    count = len(found)
    met = (at_most is None or count <= at_most) and (at_least is None or count >= at_least)
    asked = [f"at most {at_most:,}"] if at_most is not None else []
    asked += [f"at least {at_least:,}"] if at_least is not None else []
    where = f" on cuda:{device}" if device is not None else ""
    kernel = "kernel" if at_least == 1 and at_most is None else "kernels"
    what = f"{' and '.join(asked) or 'any number of'} {kernel}{f' named {named}' if named else ''}{where}"
    too_many = at_most is not None and count > at_most
    told = several(count, "such kernel")
    if not met and not count and every:
        names = [name for name, _ in Counter(one.name for one in every).most_common()]
        told += f", of {len(every):,}: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
    return report(said, met=met, what=what, found=told, line=commonest_line(found) if too_many else "")


def peak_memory(
    *, below: int | str | None = None, above: int | str | None = None, device: int = 0, trace: Run = None,
    **said: Unpack[Said],
) -> bool:  # fmt: skip
    """Expect the most bytes that tensors held on a device during a run to be below, or above, a size."""
    recording = looked_at(trace)
    peak = recording.peak_memory(device)
    most, least = (parse_size(limit) if limit is not None else None for limit in (below, above))
    met = (most is None or peak < most) and (least is None or peak > least)
    asked = [f"below {size(most)}"] if most is not None else []
    asked += [f"above {size(least)}"] if least is not None else []
    what = f"the peak memory of cuda:{device} stays {' and '.join(asked)}"
    line, held = _largest_at_peak(recording, device)
    told = size(peak) + (f", of which {size(held)} by one line" if line else "")
    return report(said, met=met, what=what, found=told, line=line if not met else "")


def _largest_at_peak(recording: Trace, device: int) -> tuple[str, int]:
    """The line whose tensors held most when the device held most, and how much."""
    blocks = [block for block in recording.allocations if block.device == device]
    if not blocks:
        return "", 0
    top = max(range(len(blocks)), key=lambda place: blocks[place].held)
    at = blocks[top].start_ns
    held: dict[str, int] = {}
    for block in blocks[: top + 1]:
        if block.line and (not block.freed or block.end_ns > at or block is blocks[top]):
            held[block.line] = held.get(block.line, 0) + block.block_bytes
    line = max(held, key=lambda one: held[one], default="")
    return line, held.get(line, 0)


def allocated(
    *, below: int | str | None = None, above: int | str | None = None, device: int = 0, **said: Unpack[Said]
) -> bool:
    """Expect what tensors hold on a device now, as ``torch.cuda.memory_allocated`` says."""
    import torch

    held = torch.cuda.memory_allocated(device)
    most, least = (parse_size(limit) if limit is not None else None for limit in (below, above))
    met = (most is None or held < most) and (least is None or held > least)
    asked = [f"less than {size(most)}"] if most is not None else []
    asked += [f"more than {size(least)}"] if least is not None else []
    return report(said, met=met, what=f"tensors hold {' and '.join(asked)} on cuda:{device} now", found=size(held))


def no_sync_in(loop: Run = None, *, at_most: int = 0, **said: Unpack[Said]) -> bool:
    """Expect that the host does not wait for a device in a run (a function, or a recording), but for `at_most` times.

    What waits: ``.item()``, ``.cpu()``, ``print`` of a tensor, ``if tensor``, a copy from pageable memory,
    ``synchronize``.
    """
    recording = looked_at(loop)
    waits = recording.waits
    met = len(waits) <= at_most
    limit = "does not wait" if at_most == 0 else f"waits at most {several(at_most, 'time')}"
    name = subject("the run") if loop is not None else "the run"
    told = f"{several(len(waits), 'wait')}, {duration(sum(one.end_ns - one.start_ns for one in waits))} in all"
    reasons = sorted({one.name for one in waits})
    told += f": {', '.join(reasons[:3])}" if reasons else ""
    hint = "Keep results on the GPU while the loop runs (losses.append(loss.detach())), and read them after it."
    line = commonest_line(waits) or student_line()
    return report(said, met=met, what=f"in {name} the host {limit} for a GPU", found=told, line=line, hint=hint)


def no_races(trace: Run = None, **said: Unpack[Said]) -> bool:
    """Expect that no two streams use the same memory without an order between them."""
    races = looked_at(trace).races
    first = races[0] if races else None
    line = (first.second_line or first.first_line) if first else ""
    hint = "Let the stream that reads wait for the one that wrote: wait_stream, or an event."
    told = f"{several(len(races), 'race')}: {first}" if first else ""
    return report(said, met=not races, what="streams that share memory are in order", found=told, line=line, hint=hint)
