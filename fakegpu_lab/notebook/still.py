"""The panel where nothing can move: a picture for a saved notebook, a table for a terminal. The same at every run."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.hardware.categories import NAMES, spoken
from fakegpu_lab.report import duration, size
from fakegpu_lab.table import Table

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot

# Okabe and Ito's colours, as in panel.css.
COLOURS = dict(zip(NAMES, ("#0072b2", "#d55e00", "#e69f00", "#56b4e9", "#cc79a7", "#009e73", "#9a9a9a"), strict=True))


def table(snapshot: Snapshot, note: str = "") -> Table:
    """One row a device: what its memory is for, what it did."""
    shown = [device for device in snapshot.devices if device.index >= 0]
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    headers = ["device", "name", "total", "allocated", *map(spoken, used), "reserved", "peak", "kernels", "busy"]
    rows = [
        [
            f"cuda:{device.index}",
            device.name,
            size(device.memory.total),
            size(device.memory.allocated),
            *(size(_bytes(device, name)) for name in used),
            size(device.memory.reserved),
            size(device.memory.peak_allocated),
            f"{device.counters.kernels:,}",
            duration(device.time.busy_ns),
        ]
        for device in shown
    ]
    title = f"{snapshot.spec}: memory by what it is for, after {duration(_now(snapshot))} of simulated time"
    return Table(headers, rows, title, frozenset(range(2, len(headers))), note)


def _now(snapshot: Snapshot) -> int:
    return max([snapshot.now_ns, *(device.time.done_ns for device in snapshot.devices)])


def _bytes(device: DeviceSnapshot, name: str) -> int:
    categories = device.memory.categories
    return getattr(categories, name) if categories is not None else 0


def picture(snapshot: Snapshot, note: str = "") -> str:
    """The same as HTML: above the table, a bar a device."""
    bars = "".join(_bar(device) for device in snapshot.devices if device.index >= 0)
    used = [name for name in NAMES if any(_bytes(device, name) for device in snapshot.devices)]
    key = " ".join(
        f'<span style="white-space: nowrap"><span style="display: inline-block; width: 11px; height: 11px; '
        f'background: {COLOURS[name]}"></span> {spoken(name)}</span>&nbsp;'
        for name in used
    )
    return f"<div>{bars}<div>{key}</div>{table(snapshot, note)._repr_html_()}</div>"


def _bar(device: DeviceSnapshot) -> str:
    """A device's memory; the scale is the larger of what it reserved at most and a tenth of the card."""
    memory = device.memory
    whole = memory.peak_reserved * 10 < memory.total
    scale = max(memory.peak_reserved, 1) if whole else memory.total
    label = f"cuda:{device.index} {device.name}: {size(memory.allocated)} allocated of {size(memory.total)}"
    label += f" (the bar ends at {size(scale)})" if whole else ""
    parts = []
    at = 0.0
    for name in NAMES:
        width = 100 * _bytes(device, name) / scale
        if width:
            title = f"{spoken(name)}: {_bytes(device, name):,} bytes"
            parts.append(
                f'<rect x="{at:.3f}%" y="0" width="{width:.3f}%" height="14" fill="{COLOURS[name]}">'
                f"<title>{title}</title></rect>"
            )
            at += width
    peak = min(100 * memory.peak_allocated / scale, 100)
    parts.append(f'<rect x="{max(peak - 0.3, 0):.3f}%" y="0" width="0.3%" height="14" fill="#888888"></rect>')
    return (
        f"<div>{html.escape(label)}</div>"
        f'<svg role="img" aria-label="{html.escape(label)}" width="100%" height="16" style="max-width: 900px">'
        f'<rect x="0" y="0" width="100%" height="14" fill="none" stroke="#888888"></rect>{"".join(parts)}</svg>'
    )
