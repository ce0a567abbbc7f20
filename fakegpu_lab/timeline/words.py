"""Amounts, rates and source lines, for people to read."""

from __future__ import annotations

import linecache
import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fakegpu_lab import surroundings

_THOUSANDS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def _figures(value: float) -> str:
    """Three figures."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"


def amount(value: float, unit: str) -> str:
    """Write an amount in three figures, with the prefix that it needs.

    >>> amount(536_870_912, "FLOP"), amount(312e12, "FLOP/s"), amount(768, "FLOP"), amount(0, "FLOP")
    ('537 MFLOP', '312 TFLOP/s', '768 FLOP', '0')
    """
    for factor, prefix in _THOUSANDS:
        if value >= factor * 0.9995:
            return f"{_figures(value / factor)} {prefix}{unit}"
    return f"{value:.0f} {unit}" if value else "0"


def rate(value: float, ns: int, unit: str) -> str:
    """Write an amount in a time as a rate; empty if either is 0.

    >>> rate(3000, 1000, "B/s")
    '3.00 GB/s'
    """
    return amount(value / ns * 1e9, unit) if value and ns else ""


def percent(part: float, whole: float) -> str:
    """Write a part of a whole.

    >>> percent(1, 3), percent(1, 1), percent(0, 0)
    ('33.3 %', '100 %', '')
    """
    if not whole:
        return ""
    value = 100 * part / whole
    return f"{value:.0f} %" if value >= 99.95 else f"{value:.1f} %"


def shapes(all_: tuple[tuple[int, ...], ...]) -> str:
    """Write the shapes of an op's tensors; of many, the first.

    >>> shapes(((8, 128), (128,), ()))
    '8×128, 128, 0-dim'
    """
    few = ["×".join(map(str, shape)) or "0-dim" for shape in all_[:4]]
    return ", ".join([*few, f"{len(all_) - 4} more"] if len(all_) > 4 else few)


class Place(NamedTuple):
    """A line of a program: how it is called, and its text (empty where the file cannot be read)."""

    label: str
    text: str


def place(line: str) -> Place:
    """Say where a record's `line` (``file:number``) is.

    A notebook's cell is called as its prompt, a file below the current folder by its path from there, another one by
    its name.
    """
    if not line:
        return Place("", "")
    name, _, number = line.rpartition(":")
    text = linecache.getline(name, int(number)).strip()
    cell = _cell(name)
    if cell:
        return Place(f"{cell} line {number}", text)
    return Place(f"{_short(name, os.getcwd())}:{number}", text)  # noqa: PTH109 - a string, and at once


@lru_cache(maxsize=1024)
def _short(name: str, folder: str) -> str:
    path = Path(name)
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name


def _cell(name: str) -> str:
    """How IPython calls a cell, such as ``In[3]``; empty where the name is no cell's."""
    shell = surroundings.shell()
    found = shell.compile.format_code_name(name) if shell is not None else None
    return str(found[1]) if found else ""
