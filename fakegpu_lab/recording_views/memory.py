"""The curve of the memory that a device's tensors held during a recording."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.recorded import Recorded


def memory_curve(recorded: Recorded, device: int) -> list[tuple[int, int]]:
    """The bytes held, as (ns, bytes) wherever they change.

    The host allocates and frees, so the times are the host's. Where several changes have the same time, the curve has
    the highest and the last value.

    The freeing of a block that was allocated before the recording is not recorded: the curve falls at the next
    allocation instead.
    """
    changes: list[tuple[int, int, int]] = []  # when, bytes more, bytes held afterwards (0: not recorded)
    for block in recorded.allocations:
        if block.device == device:
            changes.append((block.start_ns, block.block_bytes, block.held))
            if block.freed:
                changes.append((block.end_ns, -block.block_bytes, 0))
    if not changes:
        return []
    first = next(block for block in recorded.allocations if block.device == device)
    now = first.held - first.block_bytes
    curve = [(recorded.began_ns, now)]
    changes.sort(key=lambda change: change[0])
    for when, group in groupby(changes, key=lambda change: change[0]):
        together = list(group)
        most = max(after for _, _, after in together)
        now += sum(change for _, change, _ in together)
        if all(after for _, _, after in together):  # only allocations: the last one recorded the bytes held
            now = together[-1][2]
        if most > now:  # allocated and freed at the same time
            curve.append((when, most))
        if now != curve[-1][1]:
            curve.append((when, now))
    return curve
