"""Shapes and source lines, written for people to read."""

from __future__ import annotations

from fakegpu_lab.user_code.frames import Place, place

__all__ = ["Place", "place", "shapes"]


def shapes(all_: tuple[tuple[int, ...], ...]) -> str:
    """Write the shapes of an op's tensors, at most four of them.

    >>> shapes(((8, 128), (128,), ()))
    '8×128, 128, 0-dim'
    """
    few = ["×".join(map(str, shape)) or "0-dim" for shape in all_[:4]]
    return ", ".join([*few, f"{len(all_) - 4} more"] if len(all_) > 4 else few)
