"""Sizes in bytes: parsing them as people write them ("2GiB"), and writing them as PyTorch does ("2.00 GiB").

>>> parse_size("2GiB")
2147483648
>>> parse_size("80 GB")
80000000000
>>> format_size(2147483648)
'2.00 GiB'
"""

from __future__ import annotations

import re
from fractions import Fraction

from fakegpu_lab.hardware.errors import FakeGpuError

_UNITS = {
    "b": 1,
    "bytes": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(
    r"\s*(?P<sign>[+-]?)(?P<number>\d{1,20}(?:\.\d{1,20})?)\s*(?P<unit>[a-z]*)\s*", re.ASCII | re.IGNORECASE
)
_FIX = "write a whole number of bytes, or a number with a unit, such as 512MiB, 2GiB or 80GB"


def parse_size(text: str | int) -> int:
    """Read a size in bytes.

    Parameters
    ----------
    text
        A whole number of bytes, or a number with one of B, KiB, MiB, GiB, TiB (powers of 1024) or KB, MB, GB,
        TB (powers of 1000). Case and spaces do not matter.

    Raises
    ------
    FakeGpuError
        If the text is not a size, or is not above zero.
    """
    if isinstance(text, bool) or not isinstance(text, (str, int)):
        raise FakeGpuError(f"{text!r} is not a size: {_FIX}.")
    match = _SIZE.fullmatch(str(text))
    if match is None:
        raise FakeGpuError(f"{text!r} is not a size: {_FIX}.")
    unit = match["unit"].lower() or "b"
    if unit not in _UNITS:
        known = "B, KiB, MiB, GiB, TiB, KB, MB, GB and TB"
        raise FakeGpuError(f"{text!r} has the unit {match['unit']!r}, which is none of {known}: {_FIX}.")
    size = round(Fraction(match["number"]) * _UNITS[unit])
    if match["sign"] == "-" or size < 1:
        raise FakeGpuError(f"{text!r} is not above zero bytes: {_FIX}.")
    return size


def format_size(size: int) -> str:
    """Write a size in bytes as PyTorch's out-of-memory messages do (``format_size`` in c10/cuda).

    Parameters
    ----------
    size
        Bytes, zero or more.
    """
    if size <= 1024:
        return f"{size} bytes"
    if size <= 2**20:
        return f"{size / 2**10:.2f} KiB"
    if size <= 2**30:
        return f"{size / 2**20:.2f} MiB"
    return f"{size / 2**30:.2f} GiB"
