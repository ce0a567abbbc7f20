"""``lab.panel()``: a live panel of the simulated GPUs in the notebook, and the panel as a still.

The still is a picture for a saved notebook and a table for a terminal. Every run draws the same.
"""

from __future__ import annotations

import contextlib
import functools
import html
import os
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

from fakegpu_lab import session
from fakegpu_lab.driver.memory_report.memory_curve import kept
from fakegpu_lab.formatting.table import Table
from fakegpu_lab.formatting.units import capacity, duration, size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.memory_categories import COLOURS, NAMES, spoken
from fakegpu_lab.notebook.telemetry.publisher import Outlet, publisher
from fakegpu_lab.notebook.telemetry.source import NO_MACHINE, Reader
from fakegpu_lab.user_code import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fakegpu_lab.hardware.snapshot import DeviceSnapshot, Snapshot

    _Figure = tuple[str, Callable[[DeviceSnapshot], str]]

THEMES = ("auto", "light", "dark")
KEPT_ROWS = 150
"""Rows of each device's history that are saved with the notebook, to be shown without a kernel."""

_LIVE_NEEDS = "A live panel needs a notebook with widgets (JupyterLab, Notebook 7, VS Code, Colab)"

_UNUSED, _CONTEXT = "reserved, unused", "CUDA context"
_HATCHED = {
    _UNUSED: "repeating-linear-gradient(135deg, #888888 0 1px, transparent 1px 5px)",
    _CONTEXT: "repeating-linear-gradient(90deg, #888888 0 2px, transparent 2px 4px)",
}
"""The parts of a bar that are no tensors are hatched, as in panel.css."""

_open: Panel | None = None


def panel(*, live: bool | None = None, theme: str = "auto") -> Panel:
    """Show the simulated GPUs: memory by category, transfers, collectives, the last step as a timeline.

    In a notebook the panel is updated while cells run; to show it, make it the last line of a cell. Elsewhere it is a
    table or a picture of the current state.

    Parameters
    ----------
    live
        Whether to update it; by default wherever this is known to work.
    theme
        ``"auto"`` (the notebook's), ``"light"`` or ``"dark"``.

    Raises
    ------
    FakeGpuError
        There is no such theme, or `live` is True and a live panel is not possible here.
    """
    global _open
    if theme not in THEMES:
        raise FakeGpuError(f"There is no theme {theme!r}: it can be 'auto', 'light' or 'dark'.")
    missing = _missing()
    if live and missing:
        raise FakeGpuError(missing)
    if live is None:
        live = not missing and _front_end()
        missing = missing or f"{_LIVE_NEEDS}. lab.panel(live=True) shows it anyway."
    else:
        missing = ""  # nobody asks why
    if not live:
        return Panel(None, missing)
    if _open is None:
        _open = Panel(_widget()(theme=theme))
    elif theme != "auto":
        _open.widget.theme = theme
    return _open


def watch(*, live: bool | None = None, theme: str = "auto") -> Panel:
    """Show this computer's real GPUs in the panel, the sidebar and the status bar, while your program runs on them.

    Memory is what ``torch.cuda.memory_stats`` says; utilization is what the driver (NVML) says. They are read a few
    times a second, and no reading waits for the GPU. `disable` stops it, and so does `enable`.

    Parameters
    ----------
    live, theme
        As for `panel`.

    Raises
    ------
    FakeGpuError
        torch sees no GPU, or simulated ones hide it.
    """
    session.watch()
    return panel(live=live, theme=theme)


def opened() -> Panel | None:
    """The live panel, if one is open."""
    return _open


def _missing() -> str:
    """Why a live panel is not possible here; empty if it is."""
    if getattr(environment.shell(), "kernel", None) is None:
        return f"{_LIVE_NEEDS}; this Python has no notebook."
    try:
        import anywidget  # noqa: F401
    except ImportError:
        return f"{_LIVE_NEEDS}, and the package anywidget: pip install anywidget, and restart the kernel."
    return ""


def _front_end() -> bool:
    """Whether a front end that shows widgets started this kernel, rather than nbconvert, nbval or a grader."""
    started_by = ("JPY_SESSION_NAME", "VSCODE_PID", "VSCODE_CWD", "VSCODE_IPC_HOOK_CLI")
    return any(name in os.environ for name in started_by) or "google.colab" in sys.modules


@functools.cache
def _widget() -> Any:
    """The widget's class; anywidget is imported only for a live panel."""
    import anywidget
    import traitlets

    def text(name: str) -> str:
        return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")

    class PanelWidget(anywidget.AnyWidget):
        """The live panel: draws the messages that it gets; `state` is saved with the notebook."""

        _esm = text("panel.js")
        _css = text("panel.css")
        theme = traitlets.Unicode("auto").tag(sync=True)
        state = traitlets.Dict().tag(sync=True)

    return PanelWidget


class Panel:
    """The panel. As text it is a table, in a saved notebook a picture, both of the moment when it was shown."""

    def __init__(self, widget: Any, why_static: str = "") -> None:
        self.widget = widget
        self._why_static = why_static
        self._outlet: Outlet | None = None
        if widget is not None:
            sender = publisher()
            self._outlet = Outlet(sender.source, self._send, acknowledges=False)
            sender.source.busy = True  # the cell that made the panel is running
            sender.source.open()
            self.keep()
            widget.on_msg(self._on_message)
            sender.add(self._outlet)

    def _send(self, message: dict[str, Any]) -> None:
        self.widget.send({"telemetry": message})

    def _on_message(self, _: object, content: Mapping[str, Any], buffers: object) -> None:
        if self._outlet is not None and content.get("do") == "state":
            self._outlet.spoke()
            self._outlet.reader.forget()
            publisher().kick()

    def keep(self) -> None:
        """Save the current state with the notebook."""
        if self.widget is None:
            return
        source = publisher().source
        source.poll()
        message = Reader(source).message()
        if message is not None:
            state = message.model_dump(mode="json")
            state["history"] = {slot: kept(rows, KEPT_ROWS) for slot, rows in state["history"].items()}
            state["busy"] = False
            self.widget.state = state

    def close(self) -> None:
        """Stop updating. The panel stays as it is; `panel` opens another one."""
        global _open
        if self._outlet is not None:
            self.keep()
            publisher().remove(self._outlet)
            self._outlet = None
        if _open is self:
            _open = None

    def __repr__(self) -> str:
        if session.shown() is None:
            return NO_MACHINE
        return str(table(session.snapshot(categories=True), "" if self.widget else self._why_static))

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        note = "" if self.widget else self._why_static
        if session.shown() is not None:
            bundle["text/html"] = picture(session.snapshot(categories=True), note)
        metadata: dict[str, Any] = {}
        if self.widget is not None:
            with contextlib.suppress(Exception):  # without the widget, the text and the picture remain
                # On Colab this enables the widget manager, and the metadata say where to load it from.
                shown, metadata = self.widget._repr_mimebundle_()
                bundle |= shown
        return (bundle, metadata) if metadata else bundle


def table(snapshot: Snapshot, note: str = "") -> Table:
    """One row for each device: its name and size, what its memory is for, and what it did."""
    shown = [device for device in snapshot.devices if device.index >= 0]
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    figures = _figures(used, snapshot)
    headers = ["device", "name", "total", *(name for name, _ in figures)]
    rows = [
        [f"cuda:{device.index}", device.name, capacity(device.memory.total), *(of(device) for _, of in figures)]
        for device in shown
    ]
    return Table(headers, rows, _title(snapshot), frozenset(range(2, len(headers))), note)


def _title(snapshot: Snapshot) -> str:
    time = f"{duration(snapshot.done_ns)}{'' if snapshot.real else ' of simulated time'}"
    return f"{snapshot.spec}: memory by category, after {time}"


def _figures(used: Sequence[str], snapshot: Snapshot, *, drawn: bool = False) -> list[_Figure]:
    """By name, each figure of a device, in words; if `drawn`, of all that a bar has. A real card counts no kernels."""

    def held(name: str) -> Callable[[DeviceSnapshot], str]:
        return lambda device: size(_bytes(device, name))

    counts: list[_Figure] = [("kernels", lambda device: f"{device.counters.kernels:,}")]
    if any(device.counters.collective_count for device in snapshot.devices):
        counts = [
            ("collectives", lambda device: f"{device.counters.collective_count:,}"),
            ("other kernels", counts[0][1]),
        ]
    return [
        ("allocated", lambda device: size(device.memory.allocated)),
        *((spoken(name), held(name)) for name in used),
        ("reserved", lambda device: size(device.memory.reserved)),
        *([(_UNUSED, lambda device: size(_unused(device)))] if drawn else []),
        ("peak", lambda device: size(device.memory.peak_allocated)),
        *([(_CONTEXT, lambda device: size(device.memory.context))] if drawn else []),
        *([] if snapshot.real else counts),
        ("busy", lambda device: duration(device.time.busy_ns)),
    ]


def _bytes(device: DeviceSnapshot, name: str) -> int:
    categories = device.memory.categories
    return getattr(categories, name) if categories is not None else 0


def _unused(device: DeviceSnapshot) -> int:
    return max(device.memory.reserved - device.memory.allocated, 0)


def picture(snapshot: Snapshot, note: str = "") -> str:
    """The same as HTML: for each device a bar, and below it its figures, in as many columns as there is room for.

    All bars are of one scale. If no device ever reserved a tenth of the largest card, they end at the peak of reserved
    memory, and have no room for the CUDA context.
    """
    shown = [device for device in snapshot.devices if device.index >= 0]
    reserved, total = (
        max((getattr(device.memory, name) for device in shown), default=1) for name in ("peak_reserved", "total")
    )
    scale = max(reserved, 1) if reserved * 10 < total else total
    used = [name for name in NAMES if any(_bytes(device, name) for device in shown)]
    figures = _figures(used, snapshot, drawn=True)
    devices = "".join(f"{_bar(device, scale, total)}{_listed(device, used, figures)}" for device in shown)
    end = f"<div>Each bar ends at {size(scale)}, and leaves out the CUDA context.</div>" if scale < total else ""
    said = f"<p>{html.escape(note)}</p>" if note else ""
    return f"<div><div>{html.escape(_title(snapshot))}</div>{end}{devices}{said}</div>"


def _listed(device: DeviceSnapshot, used: Sequence[str], figures: Sequence[_Figure]) -> str:
    """A device's figures, each below its name; those of memory with the colour that they have in the bar."""
    colours = {spoken(name): COLOURS[name] for name in used} | _HATCHED
    small = "font-size: 90%; white-space: nowrap"
    cells = "".join(
        f'<div role="listitem"><div style="{small}">{_swatch(colours.get(name))}{name}</div>'
        f"<div>{of(device)}</div></div>"
        for name, of in figures
    )
    return (
        '<div role="list" style="display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5em, 1fr)); '
        f'gap: 2px 10px; max-width: 900px; margin: 0 0 14px">{cells}</div>'
    )


def _swatch(colour: str | None) -> str:
    style = "display: inline-block; width: 11px; height: 11px; margin-right: 5px; outline: 1px solid #88888888"
    return f'<span style="{style}; background: {colour}"></span>' if colour else ""


def _bar(device: DeviceSnapshot, scale: int, total: int) -> str:
    memory = device.memory
    label = f"cuda:{device.index} {device.name}: {size(memory.allocated)} allocated of {capacity(memory.total)}"
    held = [(spoken(name), _bytes(device, name), COLOURS[name]) for name in NAMES]
    held.append((_UNUSED, _unused(device), _HATCHED[_UNUSED]))
    if scale == total:
        held.append((_CONTEXT, memory.context, f"{_HATCHED[_CONTEXT]}; margin-left: auto"))
    parts = [
        f'<div title="{name}: {nbytes:,} bytes" style="width: {100 * nbytes / scale:.3f}%; background: {colour}"></div>'
        for name, nbytes, colour in held
        if nbytes
    ]
    return (
        f"<div>{html.escape(label)}</div>"
        f'<div role="img" aria-label="{html.escape(label)}" style="display: flex; height: 14px; max-width: 900px; '
        f'margin-bottom: 6px; border: 1px solid #888888">{"".join(parts)}</div>'
    )
