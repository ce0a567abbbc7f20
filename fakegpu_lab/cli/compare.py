"""``fakegpu-lab compare``: prints how two recorded runs differ, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.cli.show import print_parts
from fakegpu_lab.comparison import compare
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.opened.opening import open_recording
from fakegpu_lab.opened.snapshot import MemorySnapshot

if TYPE_CHECKING:
    from fakegpu_lab.opened.recorded_trace import OpenedTrace


def show(before: str, after: str, page: str | None) -> None:
    """Print the sentence and the tables; write a page if a file for it is given.

    Raises
    ------
    FakeGpuError
        A file cannot be opened or compared, or the page cannot be written.
    """
    if Path(before).resolve() == Path(after).resolve():
        raise FakeGpuError(f"{before} cannot be compared with itself: name the recording of another run as well.")
    if page is not None and not Path(page).absolute().parent.is_dir():
        raise FakeGpuError(f"The page {page} cannot be written: its folder does not exist.")
    compared = compare(_opened(before), _opened(after), _labels(Path(before), Path(after)))
    print_parts(compared.said, *compared.tables)
    if page is not None:
        compared.write_html(page)
        print(f"\nThe page with the timelines is {page}.")


def _opened(path: str) -> OpenedTrace:
    opened = open_recording(path)
    if isinstance(opened, MemorySnapshot):
        raise FakeGpuError(
            f"{path} is a memory snapshot, and only recordings of what ran can be compared: export one with "
            "torch.profiler, or with --chrome."
        )
    return opened


_SUFFIXES = (".gz", ".json", ".trace", ".pt")
_MOST = 30
"""The most characters of a name that the tables' headers have room for."""


def _labels(before: Path, after: Path) -> tuple[str, str]:
    """The files' names without their suffixes; with their folders, as far as they are needed to tell them apart."""
    first, second = before.resolve().parts, after.resolve().parts
    count = next((n for n in range(1, min(len(first), len(second))) if first[-n:] != second[-n:]), 1)
    found = [_short("/".join(parts[-count:])) for parts in (first, second)]
    return (found[0], found[1]) if found[0] != found[1] else ("before", "after")


def _short(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name if len(name) <= _MOST else f"{name[: _MOST // 2 - 1]}…{name[-_MOST // 2 :]}"
