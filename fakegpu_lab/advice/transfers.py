"""Rules about copies between host and device, and about waiting for them."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeVar

from fakegpu_lab.advice.finding import OFTEN, Finding, total_ns
from fakegpu_lab.formatting.units import duration, percent, several, size
from fakegpu_lab.hardware.network.links import STAGED_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Record, Transfer
    from fakegpu_lab.recording_views.recorded import Recorded

    _R = TypeVar("_R", bound=Record)

_TO_DEVICE = "the copy to the device"
_PAGEABLE = "the copy to the device from pageable memory"
_TINY_BYTES = 16 * 1024
"""Copies smaller than this on average take mostly latency."""

_LARGE_BYTES = 2**20
"""A copy of this size takes as long as its bytes take: latency hardly counts."""

_MANY_COPIES = 16
_SCALAR_BYTES = 8


def _by_line(records: Iterable[_R]) -> dict[str, list[_R]]:
    found: dict[str, list[_R]] = defaultdict(list)
    for record in records:
        found[record.line].append(record)
    return found


def sync_each_step(recorded: Recorded) -> list[Finding]:
    """A line in a loop makes the host wait for the device: ``loss.item()``, ``print(loss)``, ``.cpu()``, an ``if``."""
    found = []
    whole = recorded.ended_ns - recorded.began_ns
    for line, waits in _by_line(w for w in recorded.waits if not w.name.startswith(_TO_DEVICE)).items():
        lost = total_ns(waits)
        if len(waits) < OFTEN or lost < 0.01 * whole:
            continue
        found.append(Finding(
            "sync_each_step", "The host waits for the device too often",
            f"It waited {len(waits):,} times here, {duration(lost)} in all ({percent(lost, whole)} of the time). While "
            "it waits, it launches nothing, and the device runs out of work.",
            "Keep the value on the device (loss.detach()), and read it only now and then, or once after the loop.",
            line, lost,
        ))  # fmt: skip
    return found


def tiny_transfers(recorded: Recorded) -> list[Finding]:
    """One line makes many small copies, whose time is latency; reading single numbers does not count."""
    found = []
    groups: dict[tuple[str, str], list[Transfer]] = defaultdict(list)
    for copy in recorded.transfers:
        if copy.kind != "p2p" and not (copy.kind == "d2h" and copy.nbytes <= _SCALAR_BYTES):
            groups[copy.line, copy.kind].append(copy)
    for (line, kind), copies in groups.items():
        nbytes = sum(copy.nbytes for copy in copies)
        if len(copies) < _MANY_COPIES or nbytes / len(copies) >= _TINY_BYTES:
            continue
        at_once = _host_copy_ns(recorded, copies[0], nbytes, pinned=bool(copies[0].pinned))
        spent = total_ns(copies)
        if at_once is None or spent < 2 * at_once:
            continue
        way = "to the device" if kind == "h2d" else "to the host"
        found.append(Finding(
            "tiny_transfers", "Many small copies",
            f"{len(copies):,} copies {way}, of {size(nbytes // len(copies))} on average, took {duration(spent)}; one "
            f"copy of the same {size(nbytes)} takes {duration(at_once)}.",
            "Join the parts where they are (torch.stack, torch.cat), and copy them in one go.",
            line, spent - at_once,
        ))  # fmt: skip
    return found


def same_again(recorded: Recorded) -> list[Finding]:
    """An unchanged host tensor is sent to the same device again."""
    found = []
    groups: dict[tuple[int, int, str], list[Transfer]] = defaultdict(list)
    for copy in recorded.transfers:
        if copy.kind == "h2d" and copy.content:
            groups[copy.content, copy.device, copy.line].append(copy)
    lines: dict[str, list[list[Transfer]]] = defaultdict(list)
    for (_, _, line), copies in groups.items():
        if len(copies) >= OFTEN:
            lines[line].append(copies)
    for line, sent in lines.items():
        again = [copy for copies in sent for copy in copies[1:]]
        nbytes = sum(copies[0].nbytes for copies in sent)
        times = len(again) + len(sent)
        what = f"The same {size(nbytes)}" if len(sent) == 1 else f"{len(sent)} tensors, {size(nbytes)} together,"
        found.append(Finding(
            "same_again", "The same tensor is copied repeatedly",
            f"{what} went to the device in {times:,} copies, unchanged; the copies after the first took "
            f"{duration(total_ns(again))}.",
            "Copy it once, before the loop, and keep the copy on the device.",
            line, total_ns(again),
        ))  # fmt: skip
    return found


def pageable_non_blocking(recorded: Recorded) -> list[Finding]:
    """``non_blocking=True`` on memory that is not pinned: the copy is staged, and the host waits anyway."""
    found = []
    for line, waits in _by_line(w for w in recorded.waits if w.name == _PAGEABLE).items():
        found.append(Finding(
            "pageable_non_blocking", "non_blocking has no effect on pageable memory",
            f"The host waited {duration(total_ns(waits))} here in {several(len(waits), 'copy', 'copies')} that "
            "should not have blocked.",
            "Pin the source: DataLoader(…, pin_memory=True), or tensor.pin_memory() once.",
            line, total_ns(waits),
        ))  # fmt: skip
    return found


def unpinned_loader(recorded: Recorded) -> list[Finding]:
    """Batch after batch is copied from pageable memory, while the host waits."""
    found = []
    non_blocking = {wait.line for wait in recorded.waits if wait.name == _PAGEABLE}  # `pageable_non_blocking` has them
    whole = recorded.ended_ns - recorded.began_ns
    copies = (c for c in recorded.transfers if c.kind == "h2d" and c.pinned is False and c.nbytes > STAGED_BYTES)
    for line, batches in _by_line(copies).items():
        spent = total_ns(batches)
        if line in non_blocking or _distinct(batches) < OFTEN or spent < 0.02 * whole:
            continue
        each = [_host_copy_ns(recorded, copy, copy.nbytes, pinned=True) for copy in batches]
        known = [ns for ns in each if ns is not None]
        pinned = f"they take {duration(sum(known))}" if len(known) == len(batches) else "they are faster"
        found.append(Finding(
            "unpinned_loader", "Batches come from pageable memory",
            f"{len(batches):,} copies of {size(sum(c.nbytes for c in batches) // len(batches))} each took "
            f"{duration(spent)} ({percent(spent, whole)} of the time), and the host waited for each; from pinned "
            f"memory {pinned}, and with non_blocking=True the host does not wait.",
            "DataLoader(…, pin_memory=True), and batch.to(device, non_blocking=True).",
            line, spent,
        ))  # fmt: skip
    return found


def _distinct(copies: Sequence[Transfer]) -> int:
    """The number of different contents; a copy of unknown content counts as different."""
    return len({copy.content or -number for number, copy in enumerate(copies)})


def _host_copy_ns(recorded: Recorded, like: Transfer, nbytes: int, *, pinned: bool) -> int | None:
    """What a copy of `nbytes` would take, in the direction and on the device of another copy.

    Of a real machine, it is known from the recording's own large copies; None if there are none.
    """
    if recorded.machine is not None:
        slot = recorded.machine.devices[like.device].slot
        return recorded.machine.links.host_ns(slot, nbytes, to_device=like.kind == "h2d", pinned=pinned)
    fastest = max(
        (
            copy.bandwidth
            for copy in recorded.transfers
            if (copy.kind, copy.device, copy.pinned) == (like.kind, like.device, pinned) and copy.nbytes >= _LARGE_BYTES
        ),
        default=0.0,
    )
    return round(nbytes / fastest * 1e9) if fastest else None
