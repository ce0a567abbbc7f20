"""Handles of cards, and the machine that they belong to."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from fakegpu_lab.nvml import discovery
from fakegpu_lab.nvml.c_library.arguments import INVALID_ARGUMENT, UNINITIALIZED, NvmlError, target

if TYPE_CHECKING:
    from fakegpu_lab.nvml.view import Gpu, View

_HANDLE = 0x10_0000
"""A handle is this plus the card's index in the view; nothing ever follows the pointer."""


def current_view() -> View:
    """The machine now."""
    found = discovery.current()
    if found is None:
        raise NvmlError(UNINITIALIZED)
    return found


def gpu_of(handle: Any) -> Gpu:
    """The card of a handle."""
    index = (ctypes.cast(handle, ctypes.c_void_p).value or 0) - _HANDLE
    gpus = current_view().gpus
    if not 0 <= index < len(gpus):
        raise NvmlError(INVALID_ARGUMENT)
    return gpus[index]


def put_handle(argument: Any, index: int) -> None:
    """Store the handle of the card with that index."""
    value = ctypes.c_void_p(_HANDLE + index)
    ctypes.memmove(ctypes.addressof(target(argument)), ctypes.byref(value), ctypes.sizeof(value))
