"""The tables of a recording: by kernel, by source line, by module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import amount, duration, percent, rate, several, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.records import Kernel, Total, Transfer
from fakegpu_lab.recording_views.labels import place
from fakegpu_lab.recording_views.recorded import device_records, note_of_dropped
from fakegpu_lab.recording_views.uncertainty import typical

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.recording_views.recorded import Recorded

_ORDERS: dict[str, Callable[[str, Total], object]] = {
    "time": lambda name, total: -total.ns,
    "mean": lambda name, total: -total.ns / total.count,
    "calls": lambda name, total: -total.count,
    "flops": lambda name, total: -total.flops,
    "bytes": lambda name, total: -total.nbytes,
    "bandwidth": lambda name, total: -total.nbytes / max(total.ns, 1),
    "name": lambda name, total: name,
}


def summary(recorded: Recorded, title: str, sort_by: str = "time", top: int | None = 20) -> Table:
    """One row for each device and name, as ``key_averages`` of torch's profiler; dropped records count too.

    "typically" is how far such times are off from those of real cards (docs/fidelity.md).
    """
    order = _ORDERS.get(sort_by)
    if order is None:
        raise FakeGpuError(f"A summary cannot be sorted by {sort_by!r}, only by {_listed(list(_ORDERS))}.")
    _check_top(top)
    devices = sorted({device for device, _ in recorded.totals})
    rows: list[list[str]] = []
    for device in devices:
        totals = [(name, total) for (where, name), total in recorded.totals.items() if where == device]
        totals.sort(key=lambda item: (order(*item), item[0]))
        rows += _device_rows(device, totals, top)
    headers = ["name", "calls", "total", "mean", "typically", "% of time", "FLOPs", "FLOP/s", "bytes", "bandwidth"]
    if not recorded.simulated:  # measured, and without operations
        left_out = {headers.index(name) + 1 for name in ("typically", "FLOPs", "FLOP/s")}  # after the device
        headers = [name for at, name in enumerate(headers, 1) if at not in left_out]
        rows = [[cell for at, cell in enumerate(row) if at not in left_out] for row in rows]
    if len(devices) > 1:
        headers.insert(0, "device")
    else:
        rows = [row[1:] for row in rows]
    texts = 1 + (len(devices) > 1)
    return Table(headers, rows, title, frozenset(range(texts, len(headers))), note_of_dropped(recorded))


def _device_rows(device: int, totals: Sequence[tuple[str, Total]], top: int | None) -> list[list[str]]:
    """The first `top` names of a device, and one row for the sum of the others."""
    whole = sum(total.ns for _, total in totals)
    rows = [_row(device, name, total, whole) for name, total in totals[:top]]
    if top is not None and len(totals) > top:
        rest = [total for _, total in totals[top:]]
        left = Total(sum(t.count for t in rest), sum(t.ns for t in rest), sum(t.flops for t in rest),
                      sum(t.nbytes for t in rest))  # fmt: skip
        rows.append(_row(device, f"({len(rest)} more)", left, whole))
    return rows


def _row(device: int, name: str, total: Total, whole: int) -> list[str]:
    return [
        f"cuda:{device}",
        name,
        f"{total.count:,}",
        duration(total.ns),
        duration(total.ns / total.count),
        typical(name) if not name.startswith("(") else "",
        percent(total.ns, whole),
        amount(total.flops, "FLOP") if total.flops else "",
        rate(total.flops, total.ns, "FLOP/s"),
        size(total.nbytes) if total.nbytes else "",
        rate(total.nbytes, total.ns, "B/s"),
    ]


@dataclass
class LineSum:
    """The sums for one line or module; `copies_ns` is the part of `ns` in which memory was copied."""

    calls: int = 0
    ns: int = 0
    copies_ns: int = 0
    backward_ns: int = 0
    flops: int = 0
    waited_ns: int = 0


def by_line(recorded: Recorded, top: int | None = 20) -> Table:
    """One row for each line of the user's program: the devices' time for it, and the host's waits in it."""
    sums = line_sums(recorded)
    whole = sum(entry.ns for entry in sums.values())
    rows = []
    for line, entry in _first(sums, top):
        where = place(line)
        rows.append([
            where.label or "(no line known)", f"{entry.calls:,}", duration(entry.ns), percent(entry.ns, whole),
            duration(entry.waited_ns) if entry.waited_ns else "", where.text,
        ])  # fmt: skip
    headers = ["line", "kernels, copies", "device time", "% of time", "host waited", "source"]
    title = "Device time by source line"
    return Table(
        headers, rows, _shortened(title, sums, top), frozenset({1, 2, 3, 4}), note_of_dropped(recorded), frozenset({5})
    )


def line_sums(recorded: Recorded) -> dict[str, LineSum]:
    """The sums for each line: the longest device time first, then the longest wait of the host."""
    sums: dict[str, LineSum] = {}
    for record in device_records(recorded):
        entry = sums.setdefault(record.line, LineSum())
        entry.calls += 1
        ns = record.end_ns - record.start_ns
        entry.ns += ns
        entry.copies_ns += ns if isinstance(record, Transfer) else 0
    for wait in recorded.waits:
        sums.setdefault(wait.line, LineSum()).waited_ns += wait.end_ns - wait.start_ns
    return dict(sorted(sums.items(), key=lambda item: (-item[1].ns, -item[1].waited_ns, item[0])))


def by_module(recorded: Recorded, depth: int | None = None, top: int | None = 20) -> Table:
    """One row for each `nn.Module`, by the path of the innermost one; by its first `depth` components, if given."""
    if depth is not None and depth < 1:
        raise FakeGpuError(f"by_module(depth={depth}): the depth must be 1 (the outermost modules) or more.")
    sums: dict[str, LineSum] = {}
    for record in device_records(recorded):
        path = record.module if depth is None else ".".join(record.module.split(".")[:depth])
        entry = sums.setdefault(path, LineSum())
        entry.calls += 1
        ns = record.end_ns - record.start_ns
        entry.ns += ns
        if isinstance(record, Kernel):
            entry.flops += record.flops
            entry.backward_ns += ns if record.backward else 0
    sums = dict(sorted(sums.items(), key=lambda item: (-item[1].ns, item[0])))
    whole = sum(entry.ns for entry in sums.values())
    rows = [
        [
            path or "(no module)", f"{entry.calls:,}", duration(entry.ns), percent(entry.ns, whole),
            duration(entry.ns - entry.backward_ns), duration(entry.backward_ns), rate(entry.flops, entry.ns, "FLOP/s"),
        ]
        for path, entry in _first(sums, top)
    ]  # fmt: skip
    headers = ["module", "kernels, copies", "device time", "% of time", "forward", "backward", "FLOP/s"]
    if not recorded.simulated:
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    title = _shortened("Device time by module", sums, top)
    return Table(headers, rows, title, frozenset(range(1, len(headers))), note_of_dropped(recorded))


def _first(sums: dict[str, LineSum], top: int | None) -> Sequence[tuple[str, LineSum]]:
    _check_top(top)
    return list(sums.items())[:top]


def _shortened(title: str, sums: dict[str, LineSum], top: int | None) -> str:
    return f"{title}: the first {top} of {len(sums)}" if top is not None and len(sums) > top else title


def _check_top(top: int | None) -> None:
    if top is not None and top < 1:
        raise FakeGpuError(f"top must be at least 1, or None for all rows, and is {top}.")


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def counted(recorded: Recorded) -> str:
    """The number of records of each kind; dropped ones count too, except collectives."""
    copies = sum(
        total.count
        for (_, name), total in recorded.totals.items()
        if name.startswith("Memcpy") and not name.startswith("Memcpy DtoD")  # within a device: a kernel
    )
    parts = len(recorded.collectives) + recorded.dropped["collectives"]
    together = len({(part.group, part.number, part.joined_ns) for part in recorded.collectives})
    kernels = sum(total.count for total in recorded.totals.values()) - copies - parts
    blocks = len(recorded.allocations) + recorded.dropped["allocations"]
    counts: tuple[tuple[int, str], ...] = ((kernels, "kernel"), (copies, "transfer"), (blocks, "allocation"))
    if parts:
        counts = (*counts[:2], (together, "collective"), counts[2])
    text = ", ".join(several(number, what) for number, what in counts)
    lost = sum(recorded.dropped.values())
    return f"{text}; no details of {lost:,} of them" if lost else text
