"""The panel as a still: a picture for a saved notebook, a table for a terminal. Every run draws the same."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken

if TYPE_CHECKING:
    from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot


def table(snapshot: Snapshot, note: str = "", *, named: bool = True) -> Table:
    """One row for each device: its name and size if `named`, what its memory is for, and what it did."""
    shown = [device for device in snapshot.devices if device.index >= 0]
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    headers = [
        "device",
        *(["name", "total"] if named else []),
        "allocated",
        *map(spoken, used),
        "reserved",
        "peak",
        "kernels",
        "busy",
    ]
    rows = [
        [
            f"cuda:{device.index}",
            *([device.name, capacity(device.memory.total)] if named else []),
            size(device.memory.allocated),
            *(size(_bytes(device, name)) for name in used),
            size(device.memory.reserved),
            size(device.memory.peak_allocated),
            f"{device.counters.kernels:,}",
            duration(device.time.busy_ns),
        ]
        for device in shown
    ]
    title = f"{snapshot.spec}: memory by category, after {duration(snapshot.done_ns)} of simulated time"
    return Table(headers, rows, title, frozenset(range(2 if named else 1, len(headers))), note)


def _bytes(device: DeviceSnapshot, name: str) -> int:
    categories = device.memory.categories
    return getattr(categories, name) if categories is not None else 0


def picture(snapshot: Snapshot, note: str = "") -> str:
    """The same as HTML, with a bar for each device above the table, all of one scale.

    If no device ever reserved a tenth of the largest card, the bars end at the peak of reserved memory.
    """
    shown = [device for device in snapshot.devices if device.index >= 0]
    reserved, total = (
        max((getattr(device.memory, name) for device in shown), default=1) for name in ("peak_reserved", "total")
    )
    scale = max(reserved, 1) if reserved * 10 < total else total
    bars = "".join(_bar(device, scale) for device in shown)
    used = [name for name in NAMES if any(_bytes(device, name) for device in snapshot.devices)]
    key = " ".join(
        f'<span style="white-space: nowrap"><span style="display: inline-block; width: 11px; height: 11px; '
        f'background: {COLOURS[name]}"></span> {spoken(name)}</span>&nbsp;'
        for name in used
    )
    if scale < total:
        key += f"each bar ends at {size(scale)}"
    return f"<div>{bars}<div>{key}</div>{table(snapshot, note, named=False)._repr_html_()}</div>"


def _bar(device: DeviceSnapshot, scale: int) -> str:
    memory = device.memory
    label = f"cuda:{device.index} {device.name}: {size(memory.allocated)} allocated of {capacity(memory.total)}"
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
