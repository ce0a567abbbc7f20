"""Modes that make ops warn or fail: `torch.cuda.set_sync_debug_mode`, `torch.use_deterministic_algorithms`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.base import sync_debug
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.placement import determinism

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches

_set_deterministic = torch._C._set_deterministic_algorithms


def set_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """``torch._C._set_deterministic_algorithms``; ops check the mode only while it is on, so their plans change."""
    _set_deterministic(mode, warn_only=warn_only)
    dispatcher.forget()


FUNCTIONS = {
    "_cuda_set_sync_debug_mode": sync_debug.set_mode,
    "_cuda_get_sync_debug_mode": lambda: sync_debug.mode,
    "_set_deterministic_algorithms": set_deterministic_algorithms,
}


def install(patches: Patches) -> None:
    """Forget what the process has warned of; switch the synchronisation's mode off."""
    sync_debug.reset()
    determinism.reset()
