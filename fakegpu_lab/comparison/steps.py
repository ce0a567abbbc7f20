"""Steps of a recording: what a program did again and again, as a sequence that repeats to the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def period(sequence: Sequence[Hashable]) -> int:
    """The length of the shortest sequence that, repeated, makes up this one; its own length if none does.

    >>> period("abcabcabc"), period("abcab"), period("aaaa"), period("")
    (3, 5, 1, 0)
    """
    ends = [0] * len(sequence)  # the longest proper prefix that also ends here
    known = 0
    for place in range(1, len(sequence)):
        while known and sequence[place] != sequence[known]:
            known = ends[known - 1]
        known += sequence[place] == sequence[known]
        ends[place] = known
    shortest = len(sequence) - known
    return shortest if shortest and len(sequence) % shortest == 0 else len(sequence)


def steps(sequence: Sequence[Hashable], *, least: int = 2) -> int:
    """How many times a program repeats its step: 1 if no step is recognized.

    A step has at least `least` launches: one op in a loop is no step.

    >>> steps("abcabcabc"), steps("aaaa"), steps("abcabd")
    (3, 1, 1)
    """
    length = period(sequence)
    return len(sequence) // length if length >= least else 1
