"""``compute="meta"``: what torch's distributed code reads of device tensors, and is told instead.

DTensor keeps the random state of a device in a tensor on it, and compares rank 0's with its own: it stays on the host,
and all ranks' are taken to be equal. (Of DDP, `reducer` tells.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base.deferred_patches import when_imported

if TYPE_CHECKING:
    import torch

    from fakegpu_lab.driver.base.patches import Patches


def _tracker(patches: Patches, module: Any) -> None:
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
    """Patch those places; for a machine that computes no values."""
    when_imported("torch.distributed.tensor._random", patches, lambda module: _tracker(patches, module))
