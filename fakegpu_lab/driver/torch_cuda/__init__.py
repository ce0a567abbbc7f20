"""The torch.cuda surface: what its Python code asks of torch's C++ half, answered by the simulated machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.driver.torch_cuda import device

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches


def install(patches: Patches) -> None:
    """Patch torch.cuda and the C functions under it."""
    device.install(patches)
