"""Shows a recording in JupyterLab: what a double click on a file of a profiler, or on a memory snapshot, opens.

JupyterLab starts a kernel in the file's folder for it, calls `show`, and ends the kernel (labextension, recordings).
"""

from __future__ import annotations

import html
from dataclasses import replace
from typing import TYPE_CHECKING

from IPython.display import HTML, display

from fakegpu_lab.advice import advise
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.opening import open_recording
from fakegpu_lab.opened.snapshot import MemorySnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.opened.recorded_trace import OpenedTrace
    from fakegpu_lab.recording import MemoryViews


def show(path: str) -> None:
    """Display the views of a recording: a sentence, the advice, the timeline or the memory, tables to unfold.

    Parameters
    ----------
    path
        What `open` takes. If it cannot be opened, the sentence that says why is displayed.
    """
    try:
        opened = open_recording(path)
    except FakeGpuError as error:
        _write(f"<p>{html.escape(str(error))}</p>")
        return
    if isinstance(opened, MemorySnapshot):
        _write(opened.summary()._repr_html_())
        for device in sorted(opened.devices):
            _memory(opened, device, len(opened.devices) > 1)
            _folded(opened.by_line(device, top=50))
    else:
        _trace(opened)


def _trace(trace: OpenedTrace) -> None:
    _write(f"<p><b>{html.escape(trace.described())}</b></p>")
    advice = advise(trace)
    if len(advice):
        display(advice)  # type: ignore[no-untyped-call]
    display(trace.figure().without_title())  # type: ignore[no-untyped-call]
    _folded(*_tables(trace))
    for device in trace.cards:
        if trace.has_memory(device):
            _memory(trace, device, len(trace.cards) > 1)


def _tables(trace: OpenedTrace) -> Iterator[Table]:
    yield replace(trace.summary(top=50), title="Device time by kernel and copy", note="")  # the advice says it
    for table in (trace.by_line(top=50), trace.by_module(top=50)):
        if table.rows:
            yield table


def _memory(recorded: MemoryViews, device: int, several: bool) -> None:
    if several:
        _write(f"<h3>Memory of cuda:{device}</h3>")
    if recorded.memory(device).tensors:
        display(recorded.memory_figure(device))  # type: ignore[no-untyped-call]
        _folded(recorded.at_peak(device, top=50))


def _folded(*tables: Table) -> None:
    """Tables under their titles."""
    _write(
        "".join(
            f"<details><summary>{html.escape(table.title)}</summary>{table._repr_html_()}</details>" for table in tables
        )
    )


def _write(text: str) -> None:
    display(HTML(text))  # type: ignore[no-untyped-call]
