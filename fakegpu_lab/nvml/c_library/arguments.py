"""The arguments and return codes of NVML's C functions, as nvidia-ml-py passes and expects them.

Arguments are plain numbers, ctypes values, buffers, and ``byref(…)`` of what the function should fill.
"""

from __future__ import annotations

from typing import Any

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND, INSUFFICIENT_SIZE = 0, 1, 2, 3, 6, 7
LIBRARY_NOT_FOUND = 12


class NvmlError(Exception):
    """A return code other than SUCCESS: ``args[0]``."""


def target(argument: Any) -> Any:
    """What a ``byref(…)`` or a pointer points to."""
    found = getattr(argument, "_obj", None)
    if found is not None:
        return found
    return argument.contents if hasattr(argument, "contents") else argument


def number(argument: Any) -> int:
    """A number, plain or of ctypes."""
    return int(getattr(argument, "value", argument))


def text(argument: Any) -> str:
    """A string, plain or of ctypes."""
    found = getattr(argument, "value", argument)
    return found.decode() if isinstance(found, bytes) else str(found)


def fill(argument: Any, **values: Any) -> None:
    """Set those of a structure's fields that its version has."""
    structure = target(argument)
    names = {entry[0] for entry in structure._fields_}
    for name, value in values.items():
        if name in names:
            setattr(structure, name, value)


def put(argument: Any, value: Any) -> None:
    """Store a number or a string."""
    where = target(argument)
    where.value = value.encode() if isinstance(value, str) else value
