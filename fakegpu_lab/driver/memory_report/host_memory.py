"""Says that this computer's memory does not suffice, before the system would end the process without a word.

A tensor's values are in the computer's memory, and a simulated GPU may have more than the computer, or than the
container or the server of a hub that this is. Linux gives a program memory that it does not have, and kills the program
that uses it. So, whenever the caching allocator takes a large segment, `HostMemory` looks at how much memory is left.
Only growth is looked at: a program that allocates as much as it frees never gets here. A ``torch.empty`` in the
program's own code is let through, because pages that nobody writes take no memory; that a later ``fill_`` has no room
is not noticed.
"""

from __future__ import annotations

import sys
import time
from itertools import takewhile
from typing import TYPE_CHECKING

from fakegpu_lab.driver.environment import host_limits
from fakegpu_lab.driver.memory_report.out_of_memory import user_frames
from fakegpu_lab.formatting.units import size
from fakegpu_lab.hardware.errors import FakeGpuError
from fakegpu_lab.user_code.frames import OURS, kind, line_of, place, walk

if TYPE_CHECKING:
    from types import FrameType

    from fakegpu_lab.driver.environment.host_limits import MemoryLimit

LARGE = 16 * 2**20
"""Smaller segments (2 MiB, of the pool of small blocks) are taken without looking, which takes about a millisecond."""
FRESH = 1.0
RESERVE = 32 * 2**20
"""What must be left for everything else."""


class HostMemory:
    """The host's memory behind one machine.

    What was read less than `FRESH` seconds ago still counts, less what was taken since, while it is ample.
    """

    def __init__(self) -> None:
        self._read, self._left = -FRESH, 0

    def require(self, nbytes: int) -> None:
        """Raise FakeGpuError if the host has no room for `nbytes` bytes of a device's memory."""
        if nbytes < LARGE:
            return
        now = time.monotonic()
        if now - self._read < FRESH and 2 * (nbytes + RESERVE) <= self._left:
            self._left -= nbytes
            return
        limits = host_limits.memory()
        if not limits:
            return
        self._read, self._left = now, limits[0].left - nbytes
        if nbytes + RESERVE > limits[0].left and not _only_empty(frames := list(walk(sys._getframe(1)))):
            raise FakeGpuError(_sentence(nbytes, limits[0], frames))


def _only_empty(frames: list[FrameType]) -> bool:
    """Whether the program itself calls ``torch.empty`` or a relative of it, by the wrapper that `tensor_api` put there.

    In between, C++ leaves no frame; torch's own Python code, which fills what it makes (``nn.Linear``), does.
    """
    ours = list(takewhile(lambda frame: kind(frame.f_code.co_filename) == OURS, frames))
    if not user_frames(frames[len(ours) :][:1]):
        return False
    called = (getattr(frame.f_locals.get("function"), "__name__", "") for frame in ours)
    return any(name.startswith("empty") for name in called)


def _sentence(nbytes: int, limit: MemoryLimit, frames: list[FrameType]) -> str:
    users = user_frames(frames)
    line = place(line_of(users[0])).label if users else ""
    return (
        f"{line or 'The program'} needs {size(nbytes)} for values on the simulated GPU. The GPU has room, but its "
        f"values are kept in this computer's memory, and of the {size(limit.total)} that {limit.owner} may "
        f"use, {size(limit.left)} are left. Use smaller sizes, delete what you no longer need, or enable the GPUs with "
        'compute="meta" (%fakegpu a100 --compute meta): it keeps shapes, memory and times, but no values.'
    )
