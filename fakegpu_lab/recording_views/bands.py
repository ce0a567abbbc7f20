"""The allocations as bands on top of each other, in a number that a picture can show.

The largest tensors have a band each; the others of a category share one, so that the bands of a step always add up to
the bytes that tensors held. Plotly's figure and the panel's tab draw the same bands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fakegpu_lab.hardware.memory_categories import NAMES

if TYPE_CHECKING:
    from fakegpu_lab.recording_views.allocations import Allocations, Tensor


class Band(NamedTuple):
    """One tensor, or the small tensors of a category.

    Attributes
    ----------
    own
        Whether it is the band of one tensor.
    """

    category: str
    tensors: tuple[Tensor, ...]
    own: bool

    @property
    def changes(self) -> list[tuple[int, int]]:
        """(step, bytes more) wherever the band grows or shrinks."""
        taken = [(tensor.first, tensor.nbytes) for tensor in self.tensors]
        return taken + [(tensor.last, -tensor.nbytes) for tensor in self.tensors if tensor.freed]


def bands(found: Allocations, most: int) -> list[Band]:
    """The bands from the bottom to the top: what was there before, what is small, then each tensor as it came.

    Parameters
    ----------
    most
        How many tensors have a band of their own.
    """
    new = [tensor for tensor in found.tensors if tensor.first]
    own = {id(tensor) for tensor in sorted(new, key=lambda tensor: -tensor.nbytes)[:most]}
    made: list[Band] = []
    for before in (True, False):
        for category in NAMES:
            many = [t for t in found.tensors if t.category == category and id(t) not in own and (not t.first) == before]
            if many:
                made.append(Band(category, tuple(many), own=False))
    return made + [Band(tensor.category, (tensor,), own=True) for tensor in new if id(tensor) in own]


def columns(found: Allocations, most: int) -> list[int]:
    """The steps that are drawn: all of them, or of each few the one where most memory was held."""
    heights = np.array(found.heights)
    if len(heights) <= most:
        return list(range(len(heights)))
    parts = np.array_split(np.arange(len(heights)), most)
    kept = {int(part[np.argmax(heights[part])]) for part in parts} | {0, found.peak_step, len(heights) - 1}
    return sorted(kept)
