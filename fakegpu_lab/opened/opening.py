"""`open_recording`, which is `fakegpu_lab.open`: opens what a real card's profiler wrote."""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.hardware.time.records import SIMULATED
from fakegpu_lab.opened import ranks, trace_file
from fakegpu_lab.opened.content import content, refusal
from fakegpu_lab.opened.device_memory import add_memory
from fakegpu_lab.opened.device_work import records_of
from fakegpu_lab.opened.recorded_trace import OpenedTrace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fakegpu_lab.opened.snapshot import MemorySnapshot

RANKS = 64
"""The most files that are opened together."""
_ENDS = (".json", ".json.gz")


def open_recording(path: str | Path | Iterable[str | Path]) -> OpenedTrace | MemorySnapshot:
    """Open a recording of a real card.

    Parameters
    ----------
    path
        A file that `torch.profiler` wrote (``export_chrome_trace``, ``tensorboard_trace_handler``: ``.json`` or
        ``.json.gz``), that `Trace.to_chrome_trace` wrote, or a memory snapshot
        (``torch.cuda.memory._dump_snapshot``: ``.pickle``). Several traces, or a folder of them, are the ranks of one
        job: rank n becomes device n.

    Returns
    -------
    OpenedTrace or MemorySnapshot
        A recording with the views of a `Trace`; of a snapshot, those of memory.

    Raises
    ------
    FakeGpuError
        The file is not there, is damaged, or is something else; the message says what.
    """
    if isinstance(path, (str, os.PathLike)):
        one = Path(path).expanduser()
        if not one.is_dir():
            with _without_collection():
                return _opened(one)
        files = sorted(file for file in one.iterdir() if file.name.endswith(_ENDS) and file.is_file())
        if not files:
            raise refusal(one, "a folder without a .json or .json.gz in it")
    else:
        try:
            files = [Path(each).expanduser() for each in path]
        except TypeError:
            raise FakeGpuError(
                f"lab.open({printable(repr(path))[:80]}) needs the path of a file or a folder, or a list of paths."
            ) from None
        if not files:
            raise FakeGpuError("lab.open([]) was given no file: give the path of a recording, or one for each rank.")
    if len(files) > RANKS:
        raise FakeGpuError(
            f"lab.open was given {len(files):,} files, and opens at most {RANKS} together: choose some of the ranks."
        )
    with _without_collection():
        return _opened(files[0]) if len(files) == 1 else ranks.joined([_trace(file) for file in files])


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Keep the garbage collector from going through millions of new tuples, again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _opened(path: Path) -> OpenedTrace | MemorySnapshot:
    data = content(path)
    if data.startswith(b"\x80"):
        from fakegpu_lab.opened.snapshot import read_snapshot

        return read_snapshot(path, data)
    return _of_trace(path, data)


def _trace(path: Path) -> OpenedTrace:
    data = content(path)
    if data.startswith(b"\x80"):
        raise refusal(path, "a pickle, and not one of several ranks' traces")
    return _of_trace(path, data)


def _of_trace(path: Path, data: bytes) -> OpenedTrace:
    name = printable(path.name)
    file = trace_file.read(path, data)
    if file.other.get("producer") == "fakegpu_lab":
        from fakegpu_lab.opened.own_file import read_own

        return read_own(file, name)
    records, times, found, base_us = records_of(file)
    add_memory(file, found, records, base_us - file.base_us)
    used = {record.device for record in (*records.kernels, *records.transfers, *records.collectives)}
    return OpenedTrace(
        records, times, {device: file.cards.get(device, "") for device in sorted(used)}, name,
        ranks=() if file.rank is None else (file.rank,), python=bool(found.with_python), base_us=base_us,
        simulated=file.other.get("time") == SIMULATED,
    )  # fmt: skip
