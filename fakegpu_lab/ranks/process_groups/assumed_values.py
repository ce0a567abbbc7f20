"""``compute="meta"``: assumed values, where torch's distributed code reads device tensors.

DTensor keeps the random state of a device in a tensor on it, and compares rank 0's with its own. Here the state stays
on the host, and all ranks' states are assumed to be equal. (For DDP see `ddp_reducer`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.deferred_patches import when_imported

if TYPE_CHECKING:
    import torch

    from fakegpu_lab.driver.base.patches import Patches


def _patch_tracker(patches: Patches, module: Any) -> None:
    tracker = module.OffsetBasedRNGTracker
    initialise = tracker.__init__

    def without_sync(self: Any, device_mesh: Any, run_state_sync: bool = True) -> None:
        initialise(self, device_mesh, run_state_sync=False)

    def on_the_host(self: Any) -> torch.Tensor:
        state: torch.Tensor = self._device_handle.get_rng_state()
        return state

    patches.set(tracker, "__init__", without_sync)
    patches.set(tracker, "_get_device_state", on_the_host)


def install(patches: Patches) -> None:
    """Patch DTensor when it is imported; for a machine that computes no values."""
    when_imported("torch.distributed.tensor._random", patches, lambda module: _patch_tracker(patches, module))
