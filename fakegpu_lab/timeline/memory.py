"""The memory that a device's tensors held, over the time of a recording."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fakegpu_lab.timeline.recorded import Recorded


def held(recorded: Recorded, device: int) -> list[tuple[int, int]]:
    """The bytes held, as (ns, bytes) wherever they change.

    The host takes and gives back, so the times are the host's, and several changes may fall into one moment: then its
    highest and its last state are told.

    A block that was there before the recording and was given back during it is not recorded: the curve learns of it
    at the next block that is taken.
    """
    changes: list[tuple[int, int, int]] = []  # when, bytes more, all that is held then (0: not said)
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
        most = max(said for _, _, said in together)
        now += sum(change for _, change, _ in together)
        if all(said for _, _, said in together):  # nothing given back at this moment: the last one said how it stands
            now = together[-1][2]
        if most > now:  # taken and given back in one moment
            curve.append((when, most))
        if now != curve[-1][1]:
            curve.append((when, now))
    return curve
