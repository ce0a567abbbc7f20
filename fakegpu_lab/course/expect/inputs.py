"""Inputs of a check that no answer can know before: a typed-in result does not pass."""

from __future__ import annotations

import secrets


def draw(low: int, high: int) -> int:
    """Draw a whole number, another one whenever the check runs; it expects nothing.

    It comes from the system, so that no seed that a program sets makes it known. Use it for values, seeds and sizes
    that neither simulated times nor memory depend on.

    Parameters
    ----------
    low, high
        The smallest and the largest number that may come.
    """
    return low + secrets.randbelow(high - low + 1)
