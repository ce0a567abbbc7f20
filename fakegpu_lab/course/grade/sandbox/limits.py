"""What a submission may use."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20
LEAST_MEMORY = 256 * MIB
"""Bytes: with less, no notebook imports torch."""
LARGEST = 50 * MIB
"""Bytes of all files of a submission; a notebook beyond this is told, other files beyond it are left behind."""


class Limits(BaseModel):
    """What a submission may use while it is graded.

    Attributes
    ----------
    cell_seconds, total_seconds
        Of processor time, for one cell and for all. Of the clock's time, three times as much: a cell that sleeps ends
        as one that computes, and a busy computer takes no points.
    memory_bytes
        What all its processes hold in main memory together.
    processes
        How many it may start, and how many it may have at once.
    output_chars
        What it prints and shows, in all.
    file_bytes, folder_bytes
        The largest file, and all files, that it writes.
    """

    model_config = ConfigDict(frozen=True)

    cell_seconds: Annotated[float, Field(gt=0)] = 30.0
    total_seconds: Annotated[float, Field(gt=0)] = 180.0
    memory_bytes: Annotated[int, Field(ge=LEAST_MEMORY)] = 2048 * MIB
    processes: Annotated[int, Field(ge=1)] = 64
    output_chars: Annotated[int, Field(ge=1000)] = 1_000_000
    file_bytes: Annotated[int, Field(ge=MIB)] = 256 * MIB
    folder_bytes: Annotated[int, Field(ge=MIB)] = 512 * MIB
