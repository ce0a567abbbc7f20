"""The panel as a still: a picture for a saved notebook, a table for a terminal. Every run draws the same."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot


def table(snapshot: Snapshot, note: str = "") -> Table:
    """One row for each device: what its memory is for, and what it did."""
    shown = [device for device in snapshot.devices if device.index >= 0]
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    headers = ["device", "name", "total", "allocated", *map(spoken, used), "reserved", "peak", "kernels", "busy"]
    rows = [
        [
            f"cuda:{device.index}",
            device.name,
            capacity(device.memory.total),
            size(device.memory.allocated),
            *(size(_bytes(device, name)) for name in used),
            size(device.memory.reserved),
            size(device.memory.peak_allocated),
            f"{device.counters.kernels:,}",
            duration(device.time.busy_ns),
        ]
        for device in shown
    ]
    title = f"{snapshot.spec}: memory by what it is for, after {duration(snapshot.done_ns)} of simulated time"
    return Table(headers, rows, title, frozenset(range(2, len(headers))), note)


def _bytes(device: DeviceSnapshot, name: str) -> int:
    categories = device.memory.categories
    return getattr(categories, name) if categories is not None else 0


def picture(snapshot: Snapshot, note: str = "") -> str:
    """The same as HTML, with a bar for each device above the table."""
    bars = "".join(_bar(device) for device in snapshot.devices if device.index >= 0)
    used = [name for name in NAMES if any(_bytes(device, name) for device in snapshot.devices)]
    key = " ".join(
        f'<span style="white-space: nowrap"><span style="display: inline-block; width: 11px; height: 11px; '
        f'background: {COLOURS[name]}"></span> {spoken(name)}</span>&nbsp;'
        for name in used
    )
    return f"<div>{bars}<div>{key}</div>{table(snapshot, note)._repr_html_()}</div>"


def _bar(device: DeviceSnapshot) -> str:
    """A device's memory. If it never reserved a tenth of the card, the bar ends at the peak of reserved memory."""
    memory = device.memory
    zoomed = memory.peak_reserved * 10 < memory.total
    scale = max(memory.peak_reserved, 1) if zoomed else memory.total
    label = f"cuda:{device.index} {device.name}: {size(memory.allocated)} allocated of {capacity(memory.total)}"
    label += f" (the bar ends at {size(scale)})" if zoomed else ""
    parts = [
        f'<div title="{spoken(name)}: {held:,} bytes" style="width: {100 * held / scale:.3f}%; '
        f'background: {COLOURS[name]}"></div>'
        for name in NAMES
        if (held := _bytes(device, name))
    ]
    return (
        f"<div>{html.escape(label)}</div>"
        f'<div role="img" aria-label="{html.escape(label)}" style="display: flex; height: 14px; max-width: 900px; '
        f'margin-bottom: 6px; border: 1px solid #888888">{"".join(parts)}</div>'
    )
