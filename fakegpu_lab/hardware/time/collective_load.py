"""How much longer kernels take beside a collective.

A collective's thread blocks keep their multiprocessors from other kernels (github.com/NVIDIA/nccl/issues/689), and its
bytes pass through the memory that other kernels use (github.com/NVIDIA/nccl/issues/1428, where attention, products and
elementwise kernels on an A100 take 1.8 to 2.5 times as long beside an all-gather). What a step of training
computes on four A100, H100, MI210 or MI250 takes 19% longer on average, and at most 40% (arXiv:2507.03114).

Simplified:

- When a rank calls a collective, its card takes the others to be ready at the same time. While it waits for a slower
  one, the collective's blocks would take multiprocessors, and its bytes would move later. So a rank's times depend on
  what it has called, and not on which rank the simulation happens to run first.
- Only kernels that are launched after the call take longer; those in the stream before are placed already.
- The collective itself takes no longer. Real ones do, up to twice (github.com/NVIDIA/nccl/issues/1433); what kernels
  lose is the same, since the bytes are.
- A product whose tiles just fill the card takes a second wave on the multiprocessors that are left, and so up to twice
  as long (forums.developer.nvidia.com/t/337991). Here, time grows with what is missing.
- Several kernels side by side take longer only if one of them alone needs what the collective has.
- Sends and receives take nothing: how long one waits for its partner is not known when it is called.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from fakegpu_lab.hardware.time.lanes import Lane

if TYPE_CHECKING:
    from fakegpu_lab.hardware.time.clock import Stream
    from fakegpu_lab.hardware.time.roofline import Roofline

_MOST = 0.9
"""The most that collectives take together, of multiprocessors or of bandwidth."""

_STREAMS = 0.99
"""From this fraction of its time spent on memory, multiprocessors are not what a kernel waits for."""


class _Taken(NamedTuple):
    """Fractions of the card's multiprocessors, and of its memory's bandwidth."""

    sms: float
    memory: float


class CollectiveLoad:
    """The collectives that a card has been asked for, and what they leave to kernels.

    Parameters
    ----------
    roofline
        The card's.
    """

    __slots__ = ("_dram", "_lanes", "_roofline")

    def __init__(self, roofline: Roofline) -> None:
        self._roofline = roofline
        self._dram = roofline.dram_part
        self._lanes: dict[int, Lane[_Taken]] = {}  # by stream

    def add(self, stream: Stream, now: int, ready: int, ns: int, blocks: int, traffic: float) -> None:
        """A collective of `ns` nanoseconds was called at `now`, for which the card is ready at `ready`.

        Parameters
        ----------
        blocks, traffic
            The multiprocessors that it uses, and its bytes per second in the card's memory.
        """
        lane = self._lanes.setdefault(stream.id, Lane())
        lane.forget(now)
        start = max(ready, lane.work[-1][1]) if lane.work else ready
        memory = traffic * self._roofline.ns_per_byte * self._dram / 1e9
        lane.work.append((start, start + ns, _Taken(blocks * self._roofline.one_block, memory)))

    def slowed(self, now: int, start: int, ns: int, share: float, nbytes: int) -> int:
        """The nanoseconds, from `start`, of a kernel launched at `now` that takes `ns` alone."""
        taken = []
        for lane in self._lanes.values():
            if lane.work and lane.work[0][1] <= now:
                lane.forget(now)
            taken += lane.between(start, start + ns)
        if not taken:
            return ns
        roofline = self._roofline
        memory = 0.0
        if nbytes > roofline.cached:
            memory = min(nbytes * roofline.ns_per_byte / max(ns - roofline.floor, 1), 1.0)
        end = start + round(ns / (1 - _MOST))
        taken = [each for lane in self._lanes.values() for each in lane.between(start, end)]
        edges = sorted({start, end, *(edge for each in taken for edge in each[:2] if start < edge < end)})
        left = float(ns)
        for at, until in pairwise(edges):
            during = [each for from_, to, each in taken if from_ <= at < to]
            factor = self._factor(share, memory, during) if during else 1.0
            if left * factor <= until - at:
                return at - start + round(left * factor)
            left -= (until - at) / factor
        return end - start

    def _factor(self, share: float, memory: float, during: list[_Taken]) -> float:
        """How much longer a kernel takes that fills a share of the card, and spends `memory` of its time on memory."""
        sms = 1 - min(sum(each.sms for each in during), _MOST)
        bandwidth = 1 - min(sum(each.memory for each in during), _MOST)
        factor = memory * (self._dram / bandwidth + (1 - self._dram) / sms)
        if memory < _STREAMS:
            factor = max(factor, share / sms)
        return max(factor, 1.0)
