"""``CUDA_VISIBLE_DEVICES``: which of a machine's cards a process sees, and in which order.

The rules are those of the CUDA driver as PyTorch repeats them (torch/cuda/__init__.py, `_parse_visible_devices`,
`_transform_uuid_to_ordinals` and `_device_count_nvml`). ``CUDA_DEVICE_ORDER`` changes nothing: the cards of a simulated
machine have the order of its specification, which is also that of their PCI buses.

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
    """The cards that the variable's `text` makes visible, in its order; all of them if it is unset.

    The list ends before the first entry that names no card; if a card is named twice, none is visible.

    Parameters
    ----------
    uuids
        The UUIDs of the machine's cards: ``GPU-…``, or ``MIG-…`` for a slice of a card.
    """
    if text is None:
        return list(range(len(uuids)))
    found = _by_uuid(text, uuids) if text.startswith(_UUID_PREFIXES) else _by_number(text)
    if len(set(found)) < len(found):
        return []
    cut = next((place for place, number in enumerate(found) if not 0 <= number < len(uuids)), len(found))
    return found[:cut]


def _by_number(text: str) -> list[int]:
    """The leading number of each entry, as C's strtol reads it; the first entry without a number ends the list."""
    numbers = []
    for entry in text.split(","):
        match = _NUMBER.match(entry)
        if match is None or int(match[1]) < 0:
            break
        numbers.append(int(match[1]))
    return numbers


def _by_uuid(text: str, uuids: Sequence[str]) -> list[int]:
    """The card whose UUID starts with each entry; an entry that fits no card, or several, ends the list."""
    numbers = []
    for entry in text.split(","):
        matches = [number for number, uuid in enumerate(uuids) if uuid.startswith(entry)]
        if not entry.startswith(_UUID_PREFIXES) or len(matches) != 1:
            break
        numbers.append(matches[0])
    return numbers
