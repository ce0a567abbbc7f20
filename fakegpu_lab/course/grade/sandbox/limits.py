"""The resources that a submission may use: time, memory, processes, output, files."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MIB = 2**20
LEAST_MEMORY = 256 * MIB
"""Bytes; with less, a notebook cannot import torch."""
LARGEST = 50 * MIB
"""Bytes of a submission's files. A larger notebook is reported; further files are left out."""


class Limits(BaseModel):
    """What a submission may use while it is graded.

    Attributes
    ----------
    cell_seconds, total_seconds
        Processor time for one cell and for all. It may sleep for three times as long: so a cell that waits for nothing
        is stopped, too. The time in which a busy computer gives it no processor is nowhere counted.
    memory_bytes
        Main memory of all its processes together.
    processes
        How many it may start, and how many may run at once.
    output_chars
        Everything that it prints and displays.
    file_bytes, folder_bytes
        The largest file that it writes, and all of them together.
    """

    model_config = ConfigDict(frozen=True)

    cell_seconds: Annotated[float, Field(gt=0)] = 30.0
    total_seconds: Annotated[float, Field(gt=0)] = 180.0
    memory_bytes: Annotated[int, Field(ge=LEAST_MEMORY)] = 2048 * MIB
    processes: Annotated[int, Field(ge=1)] = 64
    output_chars: Annotated[int, Field(ge=1000)] = 1_000_000
    file_bytes: Annotated[int, Field(ge=MIB)] = 256 * MIB
    folder_bytes: Annotated[int, Field(ge=MIB)] = 512 * MIB
