"""``fakegpu-lab show``: prints what a real card's profiler recorded, or what a memory snapshot holds."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fakegpu_lab.advice import advise
from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.opening import open_recording
from fakegpu_lab.opened.snapshot import MemorySnapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.formatting.table import Table
    from fakegpu_lab.opened.recorded_trace import OpenedTrace


def show(files: Sequence[str], by: str, top: int, figure: str | None) -> None:
    """Print a sentence, a table and the advice; draw a figure if a file for it is given.

    Raises
    ------
    FakeGpuError
        A file cannot be opened, or the figure cannot be written.
    """
    if figure is not None and not Path(figure).absolute().parent.is_dir():
        raise FakeGpuError(f"The figure {figure} cannot be written: its folder does not exist.")
    opened = open_recording(files[0] if len(files) == 1 else list(files))
    if isinstance(opened, MemorySnapshot):
        _show_snapshot(opened, by, top)
    else:
        _show_trace(opened, by, top)
    if figure is not None:
        drawn = opened.memory_figure(min(opened.devices)) if isinstance(opened, MemorySnapshot) else opened.figure()
        drawn.write_html(figure)
        print(f"\nThe figure is in {figure}.")


def _show_trace(trace: OpenedTrace, by: str, top: int) -> None:
    if by == "kernel":
        print_parts(replace(trace.summary(top=top), note=""))  # the advice below says it
    else:
        print(printable(trace.described()) + "\n")
        print_parts(trace.by_line(top=top) if by == "line" else trace.by_module(top=top))
    advice = advise(trace)
    if len(advice):
        print("\n" + printable(repr(advice)))


def _show_snapshot(snapshot: MemorySnapshot, by: str, top: int) -> None:
    if by == "module":
        raise FakeGpuError("A memory snapshot has no modules: use --by kernel (the tensors at the peak) or --by line.")
    print_parts(snapshot.summary())
    for device in sorted(snapshot.devices):
        print()
        print_parts(snapshot.by_line(device, top) if by == "line" else snapshot.at_peak(device, top))


def print_parts(*parts: str | Table) -> None:
    """Print sentences and tables: with colours in a terminal, as plain text into a pipe or a file."""
    if not sys.stdout.isatty():
        print(printable("\n\n".join(map(str, parts))))
        return
    from fakegpu_lab.cli.plain_console import PlainConsole

    console = PlainConsole()
    for number, part in enumerate(parts):
        if number:
            console.print()
        shown: Any = printable(part) if isinstance(part, str) else part
        console.print(shown)
