"""Modes that make ops warn or fail: `torch.cuda.set_sync_debug_mode`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.driver.base import sync_debug

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


FUNCTIONS = {
    "_cuda_set_sync_debug_mode": sync_debug.set_mode,
    "_cuda_get_sync_debug_mode": lambda: sync_debug.mode,
}


def install(patches: Patches) -> None:
    """Turn the modes off, as in a new process."""
    sync_debug.reset()
