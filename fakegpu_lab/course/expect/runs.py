"""Expectations of a recorded run: its copies, kernels, memory, waits and races."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fakegpu_lab import session
from fakegpu_lab import trace as traces
from fakegpu_lab.course.expect.expectation import expectation
from fakegpu_lab.course.expect.outcome import report, running_check, student_line, subject
from fakegpu_lab.course.expect.plain_data.conversion import SeenTrace
from fakegpu_lab.course.expect.plain_data.conversion import trace as seen_trace
from fakegpu_lab.formatting.units import duration, several, size
from fakegpu_lab.hardware.catalogue.sizes import parse_size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.kernels.races import KernelRace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from typing_extensions import Unpack

    from fakegpu_lab.course.expect.outcome import Said
    from fakegpu_lab.hardware.time.records import Kernel, Record
    from fakegpu_lab.trace import Trace

    Run = Trace | Callable[[], Any] | None
    """A recording; a function to run and record; or None for the last run."""

T = TypeVar("T")

_COPIES = {"h2d": "host to device", "d2h": "device to host", "p2p": "between devices"}


def run(function: Callable[..., T], *arguments: Any, hint: str = "", **named: Any) -> T:
    """Run a function and record it, for later parts of the check. Returns what the function returns.

    Before it runs, the host waits until all devices are done, as in ``torch.cuda.synchronize()``. If it returns an
    iterator, such as a generator, that is read to its end, too, and `run` returns a list.

    Parameters
    ----------
    hint
        The author's own advice, shown if the function raises an error.
    """
    check = running_check()
    if check is not None and sys._getframe(1).f_code.co_filename not in (check.file, *check.earlier):
        check = None  # an answer runs something of its own
    try:
        synchronize()
        with _recorded() as trace:
            returned: T = _ended(function(*arguments, **named))
    except BaseException as error:
        if check is not None:
            check.run_error = error
        raise
    if check is not None:
        check.trace, check.run_error = trace, None
        if check.keep is not None:
            check.keep(trace, (returned, arguments, named))
    return returned


def _ended(returned: Any) -> Any:
    """What a run returned, with the work that an iterator does only when it is read."""
    return [*returned] if isinstance(returned, Iterator) else returned


def synchronize() -> None:
    """Wait for all devices, so that earlier work does not count for the run."""
    import torch

    for device in range(torch.cuda.device_count()):
        torch.cuda.synchronize(device)


def recording_of(trace: Run) -> SeenTrace:
    """What is seen of the recording that an expectation is about.

    Raises
    ------
    FakeGpuError
        There is none.
    """
    recording = _recording(trace)
    found, check = seen_trace(recording), running_check()
    found.of_attempt = check is not None and check.attempt is not None and recording is check.attempt.trace
    return found


def _recorded() -> Trace:
    """A recording of the simulated GPUs, to be begun.

    Raises
    ------
    FakeGpuError
        Real ones are in use, or there are none.
    """
    if session.watched() is not None:
        raise FakeGpuError(
            "This check looks at what simulated GPUs did, and a real one is in use: enable simulated ones with "
            "%fakegpu a100, and run the exercise's cell again."
        )
    return traces.Trace(session.machine())


def _recording(trace: Run) -> Trace:
    if type(trace) is traces.Trace:  # a class that inherits from it could say what it likes
        return trace
    if callable(trace):
        synchronize()
        with _recorded() as recording:
            _ended(trace())
        return recording
    if trace is not None:  # made by hand: it could say what it likes, and is no reason to look at another run
        raise TypeError(f"The check needs a recording (lab.record()), and this is a {type(trace).__name__}.")
    check = running_check()
    if check is not None:
        if check.run_error is not None:
            raise check.run_error  # parts about a run that failed fail with it
        if check.trace is not None:
            return check.trace
        if check.attempt is not None and check.attempt.error:
            raise FakeGpuError("the exercise's cell stopped with an error: fix that first")
        if check.attempt is not None and check.attempt.trace is not None:
            return check.attempt.trace
    if session.watched() is not None:
        _recorded()
    raise FakeGpuError("There is no recording to check: run the exercise's cell again, with its %%exercise line.")


def seen_run(run: Run) -> SeenTrace:
    """What was seen of a run: `expectation` put it in the run's place."""
    assert isinstance(run, SeenTrace)
    return run


def commonest_line(records: Sequence[Record]) -> str:
    """The line that most of the records come from."""
    lines = [record.line for record in records if record.line]
    return max(lines, key=lines.count) if lines else ""


class _Limits(NamedTuple):
    """How many copies of one kind a check expects, and how many bytes at most."""

    exactly: int | None
    at_most: int | None
    at_least: int | None
    most_bytes: int | None

    def phrases(self) -> list[str]:
        """The limits in words; empty if there are none."""
        most_bytes = size(self.most_bytes) if self.most_bytes is not None else None
        return _given(
            ("{}", self.exactly),
            ("at most {}", self.at_most),
            ("at least {}", self.at_least),
            ("at most {}", most_bytes),
        )

    def hold(self, count: int, nbytes: int) -> bool:
        """Whether a number of copies and their bytes are within the limits."""
        return (
            (self.exactly is None or count == self.exactly)
            and _within(count, self.at_most, self.at_least)
            and (self.most_bytes is None or nbytes <= self.most_bytes)
        )


def _given(*limits: tuple[str, object]) -> list[str]:
    """Limits in words, from pairs of a template and a value; those without a value are left out."""
    return [template.format(value) for template, value in limits if value is not None]


def _within(count: int, at_most: int | None, at_least: int | None) -> bool:
    return (at_most is None or count <= at_most) and (at_least is None or count >= at_least)


@expectation("trace", trace=recording_of)
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
    """Expect a number of copies (exactly, at most, at least), at most some bytes, and pinned memory on the host."""
    every = seen_run(trace).transfers
    limits_by_kind = {
        "h2d": _Limits(h2d, h2d_at_most, h2d_at_least, _bytes(h2d_bytes_at_most)),
        "d2h": _Limits(d2h, d2h_at_most, d2h_at_least, _bytes(d2h_bytes_at_most)),
        "p2p": _Limits(p2p, p2p_at_most, p2p_at_least, _bytes(p2p_bytes_at_most)),
    }
    wanted, got, line = [], [], ""
    met = True
    for kind, limits in limits_by_kind.items():
        phrases = limits.phrases()
        if not phrases:
            continue
        copies = [copy for copy in every if copy.kind == kind]
        nbytes = sum(copy.nbytes for copy in copies)
        wanted.append(f"{' and '.join(phrases)} from {_COPIES[kind]}".replace("from between", "between"))
        got.append(f"{several(len(copies), 'copy', 'copies')} ({size(nbytes)}) {_COPIES[kind]}")
        if not limits.hold(len(copies), nbytes):
            met = False
            line = line or commonest_line(copies)
    if pinned is not None:
        others = [copy for copy in every if copy.pinned is not None and copy.pinned is not pinned]
        wanted.append(f"all {'pinned' if pinned else 'pageable'} on the host's side")
        got.append(f"{several(len(others), 'copy', 'copies')} {'pageable' if pinned else 'pinned'}")
        met, line = met and not others, line or commonest_line(others)
    what = f"copies: {', '.join(wanted) or 'any'}"
    return report(said, met=met, what=what, found=", ".join(got), line=line)


@expectation("trace", trace=recording_of)
def kernels(
    *,
    at_most: int | None = None,
    at_least: int | None = None,
    named: str = "",
    device: int | None = None,
    trace: Run = None,
    **said: Unpack[Said],
) -> bool:
    """Expect a number of kernels; only those with `named` in their name (``"linear"``), only those on one device."""
    every = seen_run(trace).kernels
    found = [kernel for kernel in every if named in kernel.name and (device is None or kernel.device == device)]
    count = len(found)
    met = _within(count, at_most, at_least)
    limits = " and ".join(_given(("at most {:,}", at_most), ("at least {:,}", at_least))) or "any number of"
    where = f" on cuda:{device}" if device is not None else ""
    noun = "kernel" if at_least == 1 and at_most is None else "kernels"
    what = f"{limits} {noun}{f' named {named}' if named else ''}{where}"
    counted = several(count, "such kernel")
    if not met and not count and every:
        counted += f", of {len(every):,}: {_commonest_names(every)}"
    too_many = at_most is not None and count > at_most
    return report(said, met=met, what=what, found=counted, line=commonest_line(found) if too_many else "")


def _commonest_names(kernels: Sequence[Kernel], most: int = 4) -> str:
    names = [name for name, _ in Counter(kernel.name for kernel in kernels).most_common()]
    return ", ".join(names[:most]) + (" …" if len(names) > most else "")


@expectation("trace", trace=recording_of)
def peak_memory(
    *, below: int | str | None = None, above: int | str | None = None, device: int = 0, trace: Run = None,
    **said: Unpack[Said],
) -> bool:  # fmt: skip
    """Expect the peak memory of tensors on a device during a run to be below, or above, a size."""
    recording = seen_run(trace)
    if device not in recording.peaks:
        raise FakeGpuError(f"There is no device {device}: the machine has {len(recording.peaks)}.")
    peak = recording.peaks[device]
    met, limits = _within_sizes(peak, below, above, ("below", "above"))
    what = f"the peak memory of cuda:{device} stays {limits}"
    line, held = _largest_at_peak(recording, device)
    found = size(peak) + (f", of which {size(held)} by one line" if line else "")
    return report(said, met=met, what=what, found=found, line=line if not met else "")


def _within_sizes(
    nbytes: int, below: int | str | None, above: int | str | None, words: tuple[str, str]
) -> tuple[bool, str]:
    """Whether a size is within limits, and the limits in words."""
    most, least = _bytes(below), _bytes(above)
    met = (most is None or nbytes < most) and (least is None or nbytes > least)
    limits = zip(words, (most, least), strict=True)
    return met, " and ".join(f"{word} {size(limit)}" for word, limit in limits if limit is not None)


def _bytes(limit: int | str | None) -> int | None:
    return parse_size(limit) if limit is not None else None


def _largest_at_peak(recording: SeenTrace, device: int) -> tuple[str, int]:
    """The line whose tensors held most memory at the device's peak, and how many bytes."""
    blocks = [block for block in recording.allocations if block.device == device]
    if not blocks:
        return "", 0
    peak = max(range(len(blocks)), key=lambda index: blocks[index].held)
    at = blocks[peak].start_ns
    held: dict[str, int] = {}
    for block in blocks[: peak + 1]:
        if block.line and (not block.freed or block.end_ns > at or block is blocks[peak]):
            held[block.line] = held.get(block.line, 0) + block.block_bytes
    line = max(held, key=lambda line: held[line], default="")
    return line, held.get(line, 0)


def _held(device: int) -> Any:
    """A device, and the bytes that tensors hold on it now."""
    import torch

    return device, torch.cuda.memory_allocated(device)


def _seen_memory(device: Any) -> tuple[int, int]:
    index, held = device
    return index, held


@expectation("device", device=_held)
def allocated(
    *, below: int | str | None = None, above: int | str | None = None, device: int = 0, **said: Unpack[Said]
) -> bool:
    """Expect ``torch.cuda.memory_allocated`` of a device to be below, or above, a size."""
    device, held = _seen_memory(device)
    met, limits = _within_sizes(held, below, above, ("less than", "more than"))
    return report(said, met=met, what=f"tensors hold {limits} on cuda:{device} now", found=size(held))


@expectation("loop", loop=recording_of)
def no_sync_in(loop: Run = None, *, at_most: int = 0, **said: Unpack[Said]) -> bool:
    """Expect that the host waits for devices at most `at_most` times in a run (a function, or a recording).

    The host waits in ``.item()``, ``.cpu()``, ``print`` of a tensor, ``if tensor``, a copy from pageable memory,
    and ``synchronize``.
    """
    waits = seen_run(loop).waits
    met = len(waits) <= at_most
    limit = "does not wait" if at_most == 0 else f"waits at most {several(at_most, 'time')}"
    name = subject("the run")
    found = f"{several(len(waits), 'wait')}, {duration(sum(wait.end_ns - wait.start_ns for wait in waits))} in all"
    reasons = sorted({wait.name for wait in waits})
    found += f": {', '.join(reasons[:3])}" if reasons else ""
    hint = "Keep results on the GPU while the loop runs (losses.append(loss.detach())), and read them after it."
    line = commonest_line(waits) or student_line()
    return report(said, met=met, what=f"in {name} the host {limit} for a GPU", found=found, line=line, hint=hint)


@expectation("trace", trace=recording_of)
def no_races(trace: Run = None, **said: Unpack[Said]) -> bool:
    """Expect that streams that use the same memory are ordered by a wait or an event.

    The threads of a kernel must be ordered, too, by a barrier or by atomic operations.
    """
    recording = seen_run(trace)
    races = recording.races
    first = races[0] if races else None
    line = (first.second_line or first.first_line) if first else ""
    what = "streams that share memory are in order"
    hint = "Let the stream that reads wait for the one that writes: wait_stream, or an event."
    if type(first) is KernelRace or any(kernel.access is not None for kernel in recording.kernels):
        what = "what threads share is in order"
        hint = "Order them with a barrier or an atomic operation, or let each of them write its own element."
    found = f"{several(len(races), 'race')}: {first}" if first else ""
    return report(said, met=not races, what=what, found=found, line=line, hint=hint)
