"""Modes that make ops warn or fail: `torch.cuda.set_sync_debug_mode`, `torch.use_deterministic_algorithms`."""

from __future__ import annotations

import torch

from fakegpu_lab.driver.base import sync_debug
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.placement import determinism

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


def _begin() -> None:
    sync_debug.reset()
    determinism.reset()


CHANGES = [*in_cuda_builds(FUNCTIONS), begun(_begin, "nothing was warned of yet; the synchronization's mode is off")]
