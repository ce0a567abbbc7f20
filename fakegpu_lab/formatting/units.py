"""Sizes, times, rates and counts, written for people.

The panel and JupyterLab's sidebar write sizes and times in the same way (`labextension/src/units.ts`).
"""

from __future__ import annotations

_THOUSANDS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def size(nbytes: int) -> str:
    """Write a size with three significant figures, to fit a column.

    >>> size(0), size(360_000), size(84_986_691_584)
    ('0', '352 KiB', '79.2 GiB')
    """
    return _three_figures(nbytes, ("B", "KiB", "MiB", "GiB", "TiB"), 1024, 1000)


def capacity(nbytes: int) -> str:
    """Write the memory of a card, or of several: with two decimals, as torch's out-of-memory message has it.

    >>> capacity(85_094_039_552), capacity(2 * 85_094_039_552), capacity(2**30)
    ('79.25 GiB', '158.50 GiB', '1.00 GiB')
    """
    unit, scale = ("GiB", 2**30) if nbytes >= 2**30 else ("MiB", 2**20)
    return f"{nbytes / scale:.2f} {unit}"


def duration(ns: float) -> str:
    """Write a time with three significant figures.

    >>> duration(0), duration(850), duration(52_406), duration(2_278_221), duration(1_234_567_890)
    ('0', '850 ns', '52.4 µs', '2.28 ms', '1.23 s')
    """
    return _three_figures(ns, ("ns", "µs", "ms", "s"), 1000, 999.5)


def amount(value: float, unit: str) -> str:
    """Write an amount with three significant figures and an SI prefix.

    >>> amount(536_870_912, "FLOP"), amount(312e12, "FLOP/s"), amount(768, "FLOP"), amount(0, "FLOP")
    ('537 MFLOP', '312 TFLOP/s', '768 FLOP', '0')
    """
    for factor, prefix in _THOUSANDS:
        if value >= factor * 0.9995:
            return f"{_figures(value / factor)} {prefix}{unit}"
    return f"{value:.0f} {unit}" if value else "0"


def rate(value: float, ns: int, unit: str) -> str:
    """Write an amount divided by a time as a rate; empty if either is 0.

    >>> rate(3000, 1000, "B/s")
    '3.00 GB/s'
    """
    return amount(value / ns * 1e9, unit) if value and ns else ""


def percent(part: float, whole: float) -> str:
    """Write a part of a whole as a percentage; empty if the whole is 0.

    >>> percent(1, 3), percent(1, 1), percent(0, 0)
    ('33.3%', '100%', '')
    """
    if not whole:
        return ""
    value = 100 * part / whole
    return f"{value:.0f}%" if value >= 99.95 else f"{value:.1f}%"


def several(count: int, one: str, many: str = "") -> str:
    """Write a count with its noun.

    >>> several(1, "copy", "copies"), several(3, "kernel")
    ('1 copy', '3 kernels')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _three_figures(count: float, units: tuple[str, ...], step: int, full: float) -> str:
    """Write an amount of the smallest unit in the first unit in which it is less than `full`, or in the last unit."""
    value, unit = float(count), units[0]
    for unit in units:
        if value < full or unit == units[-1]:
            break
        value /= step
    if unit == units[0]:
        return f"{count:.0f} {unit}" if count else "0"
    return f"{_figures(value)} {unit}"


def _figures(value: float) -> str:
    """Write a value below 1000 with three significant figures."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
