"""Stretches of time, each from its start to its end in ns: merged, intersected, measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fakegpu_lab.hardware.time.records import Record

Span = tuple[int, int]


def of(records: Iterable[Record]) -> list[Span]:
    """The times at which at least one record ran."""
    return merged((record.start_ns, record.end_ns) for record in records)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Times without overlaps, in order; empty ones are left out.

    >>> merged([(5, 7), (0, 2), (1, 3), (9, 9)])
    [(0, 3), (5, 7)]
    """
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def shared(first: Sequence[Span], second: Sequence[Span]) -> int:
    """Nanoseconds that two lists of merged times have in common.

    >>> shared([(0, 10)], [(2, 4), (8, 12)])
    4
    """
    total = i = k = 0
    while i < len(first) and k < len(second):
        total += max(0, min(first[i][1], second[k][1]) - max(first[i][0], second[k][0]))
        if first[i][1] < second[k][1]:
            i += 1
        else:
            k += 1
    return total


def length(spans: Iterable[Span]) -> int:
    """Nanoseconds of merged times.

    >>> length([(0, 3), (5, 7)])
    5
    """
    return sum(end - start for start, end in spans)
