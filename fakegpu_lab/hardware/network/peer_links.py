"""When a card's links to other cards carry sends: those of one card share its links out, and those to one card its in.

NCCL's sends run beside each other, and none alone leaves bandwidth over: a card that sends to seven others at once
takes as long as for one after the other. Simplified: sends that overlap follow each other on the links, where NCCL
interleaves them, so that the first ends too early and the last at the right time; collectives do not share with them.
"""

from __future__ import annotations

from bisect import insort


class PeerLinks:
    """Both directions of a card's links to the others."""

    __slots__ = ("_in", "_out")

    def __init__(self) -> None:
        self._out: list[tuple[int, int]] = []
        self._in: list[tuple[int, int]] = []

    def carry(self, to: PeerLinks, start: int, ns: int) -> int:
        """Carry a send to another card from `start` on, or as soon as both have links free; return when it ends, ns.

        The send may have been called before others that are carried already: it takes the first gap.
        """
        while (later := _gap(to._in, _gap(self._out, start, ns), ns)) != start:
            start = later
        for lane in (self._out, to._in):
            insort(lane, (start, start + ns))
            del lane[:-_MOST]
        return start + ns


_MOST = 64
"""Sends of one direction that are kept: a gap before them is not looked for."""


def _gap(lane: list[tuple[int, int]], start: int, ns: int) -> int:
    """The first moment from `start` on at which nothing is carried for `ns`."""
    for begin, end in lane:
        if begin >= start + ns:
            break
        start = max(start, end)
    return start
