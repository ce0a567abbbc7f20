"""`sample_programs`: run only some of a kernel's blocks, if you want its traffic and time but not its results."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_most: list[int] = []


@contextmanager
def sample_programs(count: int) -> Iterator[None]:
    """Within this context, kernels run at most `count` of their programs (blocks), from the middle of the grid.

    Their figures are scaled up to the whole grid. Results are those of the programs that ran; the others are missing.
    What all programs read of the same memory counts several times for DRAM.
    """
    if not hasattr(count, "__index__") or count < 1:
        raise FakeGpuError(f"sample_programs({count!r}): the number of programs must be a whole number, 1 or more.")
    _most.append(int(count))
    try:
        yield
    finally:
        _most.pop()


def chosen(total: int) -> NDArray[np.int64]:
    """The numbers of the programs that run, of `total`."""
    if not _most or _most[-1] >= total:
        return np.arange(total, dtype=np.int64)
    return np.arange(_most[-1], dtype=np.int64) + (total - _most[-1]) // 2
