"""The content of a file that somebody else wrote: read with limits, and called what it is if it is something else."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.printable import printable
from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 2 * 2**30
"""Bytes of a file, and of what a compressed one expands to."""
EXPANDS, _FROM = 250, 64 * 2**20
"""How many times its size a compressed trace may have: real ones have 8 to 40 times. Counted from this size on."""
_PART = 8 * 2**20

_READS = (
    "lab.open reads the .json or .json.gz of torch.profiler's export_chrome_trace, and the .pickle of "
    "torch.cuda.memory._dump_snapshot"
)
_OTHERS = (
    (b"SQLite format 3\x00", "an SQLite database, as Nsight Systems exports it"),
    (b"PK\x03\x04", "a zip archive, such as a checkpoint of torch.save"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
    (b"<", "a page of HTML or XML"),
)
_NSIGHT = (".nsys-rep", ".qdrep", ".ncu-rep", ".qdstrm")


def refusal(path: Path, what: str, hint: str = _READS) -> FakeGpuError:
    """The error about a file that is something else: one sentence that says what it is, and what can be read."""
    return FakeGpuError(f"{printable(path.name)} is {what}; {hint}.")


def broken(path: Path, what: str) -> FakeGpuError:
    """The error about a file that is damaged."""
    return FakeGpuError(f"{printable(path.name)} cannot be read, because {what}: copy it or export it again.")


def content(path: Path) -> bytes:
    """The bytes of a file, expanded if they are compressed with gzip.

    Raises
    ------
    FakeGpuError
        It is not there, not a file, too large, damaged, or evidently something else than a recording.
    """
    if path.is_dir():
        raise refusal(path, "a folder without a trace")
    if not path.exists():
        raise FakeGpuError(f"There is no file {printable(str(path))}: give the path of a recording; {_READS}.")
    if not path.is_file():
        raise refusal(path, "not a regular file")
    if path.suffix in _NSIGHT:
        raise refusal(path, "a report of NVIDIA Nsight")
    try:
        if path.stat().st_size > LIMIT:
            raise _too_large(path, size(path.stat().st_size))
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        data = _expanded(path) if compressed else path.read_bytes()
    except OSError as error:
        raise FakeGpuError(f"{printable(path.name)} cannot be read: {error.strerror or error}.") from None
    if not data:
        raise refusal(path, "empty")
    for start, what in _OTHERS:
        if data.startswith(start):
            raise refusal(path, what)
    return data


def _too_large(path: Path, nbytes: str) -> FakeGpuError:
    return FakeGpuError(
        f"{printable(path.name)} has {nbytes}, and lab.open reads at most {size(LIMIT)}: record fewer steps, with "
        "torch.profiler.schedule."
    )


def _expanded(path: Path) -> bytes:
    """What a gzip file has in it."""
    most = path.stat().st_size * EXPANDS
    parts: list[bytes] = []
    total = 0
    try:
        with gzip.open(path) as file:
            while part := file.read(_PART):
                total += len(part)
                if total > LIMIT:
                    raise _too_large(path, f"more than {size(LIMIT)} when it is expanded")
                if total > max(most, _FROM):
                    raise refusal(path, f"a compressed file that expands to more than {EXPANDS} times its size")
                parts.append(part)
    except EOFError:
        raise broken(path, "it ends in the middle of its compressed data") from None
    except (gzip.BadGzipFile, zlib.error):
        raise broken(path, "its compressed data is damaged") from None
    return b"".join(parts)
