"""What the simulation changes in the libraries that kernels are written with; nothing here imports them."""

from __future__ import annotations

from fakegpu_lab.driver.base.changes import begun
from fakegpu_lab.kernels import races
from fakegpu_lab.kernels.numba_cuda import install as numba_cuda
from fakegpu_lab.kernels.triton_programs import install as triton_programs

CHANGES = [begun(lambda: races.forget, "races are those of one machine"), *numba_cuda.CHANGES, *triton_programs.CHANGES]
