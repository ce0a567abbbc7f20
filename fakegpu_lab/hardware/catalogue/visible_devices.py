"""``CUDA_VISIBLE_DEVICES``: which of a machine's cards a process sees, and in which order.

The rules are those of the CUDA driver as PyTorch knows them (torch/cuda/__init__.py, `_parse_visible_devices`,
`_transform_uuid_to_ordinals` and `_device_count_nvml`). ``CUDA_DEVICE_ORDER`` changes nothing: a simulated machine's
cards stand in the order in which they were asked for, which is that of their PCI buses.

>>> visible("1,0", ["GPU-aaaa", "GPU-bbbb"]), visible("GPU-b", ["GPU-aaaa", "GPU-bbbb"]), visible("0,7,1", ["", ""])
([1, 0], [1], [0])
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE = "CUDA_VISIBLE_DEVICES"
_UUID_PREFIXES = ("GPU-", "MIG-")
_NUMBER = re.compile(r"\s*([-+]?\d+)", re.ASCII)


def visible(text: str | None, uuids: Sequence[str]) -> list[int]:
    """The cards that the variable's `text` lets through, in its order; all of them where it is unset.

    The list ends before the first entry that names no card; one that names a card twice lets none through.

    Parameters
    ----------
    uuids
        Of the machine's cards, as ``GPU-…``, or ``MIG-…`` for a slice of one.
    """
    if text is None:
        return list(range(len(uuids)))
    found = _by_uuid(text, uuids) if text.startswith(_UUID_PREFIXES) else _by_number(text)
    if len(set(found)) < len(found):
        return []
    cut = next((place for place, number in enumerate(found) if not 0 <= number < len(uuids)), len(found))
    return found[:cut]


def _by_number(text: str) -> list[int]:
    """The leading number of every entry, as C's strtol reads it; the first entry without one ends the list."""
    numbers = []
    for entry in text.split(","):
        match = _NUMBER.match(entry)
        if match is None or int(match[1]) < 0:
            break
        numbers.append(int(match[1]))
    return numbers


def _by_uuid(text: str, uuids: Sequence[str]) -> list[int]:
    """The card whose UUID begins with each entry; one that fits none, or several, ends the list."""
    numbers = []
    for entry in text.split(","):
        fitting = [number for number, uuid in enumerate(uuids) if uuid.startswith(entry)]
        if not entry.startswith(_UUID_PREFIXES) or len(fitting) != 1:
            break
        numbers.append(fitting[0])
    return numbers
