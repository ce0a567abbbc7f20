"""``compute="meta"``: assumed values, where torch's distributed code reads device tensors.

DTensor keeps the random state of a device in a tensor on it, and compares rank 0's with its own. Here the state stays
on the host, and all ranks' states are assumed to be equal. (For DDP see `ddp_reducer`.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import imported, replaced

if TYPE_CHECKING:
    import torch

    from fakegpu_lab.driver.base.changes import Change


def _rows(module: Any) -> list[Change]:
    tracker = module.OffsetBasedRNGTracker
    initialise = tracker.__init__

    def without_sync(self: Any, device_mesh: Any, run_state_sync: bool = True) -> None:
        initialise(self, device_mesh, run_state_sync=False)

    def on_the_host(self: Any) -> torch.Tensor:
        state: torch.Tensor = self._device_handle.get_rng_state()
        return state

    path, why = f"{module.__name__}.OffsetBasedRNGTracker", "the state is the same on all ranks"
    return [replaced(f"{path}.__init__", without_sync, why), replaced(f"{path}._get_device_state", on_the_host, why)]


CHANGES = [
    imported(
        "torch.distributed.tensor._random", _rows, "ranks without values agree on the random state", when=current.meta
    )
]
