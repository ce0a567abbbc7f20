"""Everything that `enable` changes in the libraries that kernels are written with; undone by `disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fakegpu_lab.kernels import races
from fakegpu_lab.kernels.numba_cuda import install as numba_cuda
from fakegpu_lab.kernels.triton_programs import install as triton_programs

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches


def install(patches: Patches) -> None:
    """Let them see the simulated devices."""
    patches.later(races.forget)
    numba_cuda.install(patches)
    triton_programs.install(patches)
