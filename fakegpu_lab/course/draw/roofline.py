"""The roofline: how fast a kernel can be at most, by how much it computes with each byte."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fakegpu_lab.formatting.drawing import PALETTE, Drawing
from fakegpu_lab.formatting.units import several
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH, _HEIGHT = 620.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 76.0, 16.0, 14.0, 44.0


def roofline(kernels: Mapping[str, tuple[float, float, float]], *, peak: float, bandwidth: float) -> Drawing:
    """Draw kernels under the roof of a card (Williams, Waterman and Patterson, Communications of the ACM, 2009).

    Parameters
    ----------
    kernels
        By name: floating-point operations, bytes moved, seconds.
    peak, bandwidth
        Of the card: operations a second, bytes a second.

    Examples
    --------
    >>> from fakegpu_lab.course.draw import roofline
    >>> print(roofline({"add": (1e7, 1.2e8, 80e-6), "matmul": (2.1e9, 1.3e7, 159e-6)}, peak=19.5e12, bandwidth=2e12))
    A roofline with its ridge at 9.8 FLOP/byte and 2 kernels: add does 0.083 FLOP/byte at 0.125 TFLOP/s (75% of the \
roof); matmul does 162 FLOP/byte at 13.2 TFLOP/s (68% of the roof).
    """
    wrong = [name for name, figures in kernels.items() if min(figures) <= 0]
    if wrong or min(peak, bandwidth) <= 0 or not kernels:
        what = f"{wrong[0]!r} has one that is not" if wrong else "there must be at least one kernel"
        raise FakeGpuError(f"roofline: operations, bytes, seconds, peak and bandwidth must be above 0; {what}.")
    ridge = peak / bandwidth
    places = {name: (flops / nbytes, flops / seconds) for name, (flops, nbytes, seconds) in kernels.items()}
    left = math.floor(math.log10(min(*(x for x, _ in places.values()), ridge / 10)))
    right = math.ceil(math.log10(max(*(x for x, _ in places.values()), ridge * 10)))
    top = math.log10(peak) + 0.25
    bottom = math.floor(math.log10(min(*(y / 2 for _, y in places.values()), peak / 100)))
    drawn = Drawing(_WIDTH, _HEIGHT)

    def at(intensity: float, speed: float) -> tuple[float, float]:
        along = (math.log10(intensity) - left) / (right - left)
        up = (math.log10(speed) - bottom) / (top - bottom)
        return _LEFT + along * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    floor = 10.0**bottom
    drawn.line(at(10.0**left, floor), at(10.0**right, floor))
    drawn.line(at(10.0**left, floor), at(10.0**left, 10**top))
    for power in range(left, right + 1):
        x, y = at(10.0**power, floor)
        drawn.text(x, y + 15, f"{10.0**power:g}", anchor="end" if power == right else "middle")
    for power in range(bottom, math.floor(top) + 1):
        x, y = at(10.0**left, 10.0**power)
        drawn.text(x - 6, y + 4, f"{10.0**power / 1e12:g}", anchor="end")
    drawn.text(_LEFT, _HEIGHT - 10, "FLOP/byte")
    drawn.text(_LEFT + 6, _TOP + 6, "TFLOP/s")
    foot = max(10.0**left, floor / bandwidth)
    drawn.line(at(foot, foot * bandwidth), at(ridge, peak))
    drawn.line(at(ridge, peak), at(10.0**right, peak))
    drawn.line(at(ridge, floor), at(ridge, peak), dashed=True)
    x, y = at(ridge, peak)
    drawn.text(x - 12, y - 5, "memory-bound", anchor="end")
    drawn.text(x + 6, y - 5, "compute-bound")
    said = []
    for number, (name, (intensity, speed)) in enumerate(places.items()):
        share = speed / min(peak, intensity * bandwidth)
        per_byte = f"{intensity:,.0f}" if intensity >= 100 else f"{intensity:.2g}"
        about = f"{per_byte} FLOP/byte at {speed / 1e12:.3g} TFLOP/s ({100 * share:.0f}% of the roof)"
        x, y = at(intensity, speed)
        drawn.rect(x - 5, y - 5, 10, 10, PALETTE[number % len(PALETTE)], hint=f"{name}: {about}")
        drawn.text(x + 9, y + 13, name) if x < _WIDTH - 150 else drawn.text(x - 9, y + 13, name, anchor="end")
        said.append(f"{name} does {about}")
    drawn.words = (
        f"A roofline with its ridge at {ridge:.2g} FLOP/byte and {several(len(places), 'kernel')}: {'; '.join(said)}."
    )
    return drawn
