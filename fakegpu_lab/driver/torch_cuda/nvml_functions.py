"""Attaches the simulated NVML to pynvml (nvidia-ml-py), and so to `torch.cuda.utilization` and related functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import deferred_patches

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Put the simulated library under pynvml when that is imported."""

    def attach(module: Any) -> None:
        from fakegpu_lab.nvml import library

        patches.later(library.attach(module))

    deferred_patches.when_imported("pynvml", patches, attach)
