"""The panel as a still: a picture for a saved notebook, a table for a terminal. Every run draws the same."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, size
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot


def table(snapshot: Snapshot, note: str = "") -> Table:
    """One row for each device: its name and size, what its memory is for, and what it did."""
    shown = [device for device in snapshot.devices if device.index >= 0]
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    headers = ["device", "name", "total", *(name for name, _ in _figures(used))]
    rows = [
        [f"cuda:{device.index}", device.name, capacity(device.memory.total), *(of(device) for _, of in _figures(used))]
        for device in shown
    ]
    return Table(headers, rows, _title(snapshot), frozenset(range(2, len(headers))), note)


def _title(snapshot: Snapshot) -> str:
    return f"{snapshot.spec}: memory by what it is for, after {duration(snapshot.done_ns)} of simulated time"


def _figures(used: Sequence[str]) -> list[tuple[str, Callable[[DeviceSnapshot], str]]]:
    """By name, each figure of a device, in words."""

    def held(name: str) -> Callable[[DeviceSnapshot], str]:
        return lambda device: size(_bytes(device, name))

    return [
        ("allocated", lambda device: size(device.memory.allocated)),
        *((spoken(name), held(name)) for name in used),
        ("reserved", lambda device: size(device.memory.reserved)),
        ("peak", lambda device: size(device.memory.peak_allocated)),
        ("kernels", lambda device: f"{device.counters.kernels:,}"),
        ("busy", lambda device: duration(device.time.busy_ns)),
    ]


def _bytes(device: DeviceSnapshot, name: str) -> int:
    categories = device.memory.categories
    return getattr(categories, name) if categories is not None else 0


def picture(snapshot: Snapshot, note: str = "") -> str:
    """The same as HTML: for each device a bar, and below it its figures, in as many columns as there is room for.

    All bars are of one scale. If no device ever reserved a tenth of the largest card, they end at the peak of reserved
    memory.
    """
    shown = [device for device in snapshot.devices if device.index >= 0]
    reserved, total = (
        max((getattr(device.memory, name) for device in shown), default=1) for name in ("peak_reserved", "total")
    )
    scale = max(reserved, 1) if reserved * 10 < total else total
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    devices = "".join(f"{_bar(device, scale)}{_listed(device, used)}" for device in shown)
    end = f"<div>Each bar ends at {size(scale)}.</div>" if scale < total else ""
    said = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div><div>{html.escape(_title(snapshot))}</div>{end}{devices}{said}</div>"


def _listed(device: DeviceSnapshot, used: Sequence[str]) -> str:
    """A device's figures, each below its name; those of memory with the colour that they have in the bar."""
    colours = {spoken(name): COLOURS[name] for name in used}
    cells = "".join(
        f'<div role="listitem"><div style="font-size: 90%; white-space: nowrap">{_swatch(colours.get(name))}'
        f"{name}</div><div>{of(device)}</div></div>"
        for name, of in _figures(used)
    )
    return (
        '<div role="list" style="display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5em, 1fr)); '
        f'gap: 2px 10px; max-width: 900px; margin: 0 0 14px">{cells}</div>'
    )


def _swatch(colour: str | None) -> str:
    style = "display: inline-block; width: 11px; height: 11px; margin-right: 5px"
    return f'<span style="{style}; background: {colour}"></span>' if colour else ""


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
