"""torch.cuda on the simulated machine: the C++ functions that torch's own Python code calls. Start with `devices`.

torch/cuda/*.py runs unmodified. Each module here has one subject: its ``FUNCTIONS``, under torch's own names, are set
on ``torch._C``, and its `install` patches what Python bound elsewhere when a CPU build was imported. `devices` has the
devices, `streams` streams and events, `memory` and `history` the allocator's functions, `cuda_build` versions and
switches. May import every other room of the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.torch_cuda import (
    accelerator,
    comm,
    debug_modes,
    facades,
    garbage,
    generators,
    graphs,
    history,
    memory,
    memory_pools,
    streams,
)
from fakegpu_lab.driver.torch_cuda.cuda_build import cudart, flags, versions
from fakegpu_lab.driver.torch_cuda.devices import (
    current_device,
    default_type,
    device_type,
    lifecycle,
    properties,
    tensor_types,
)

if TYPE_CHECKING:
    from fakegpu_lab.driver.base.patches import Patches

_SUBJECTS = (
    lifecycle, versions, flags, current_device, properties, memory, history, streams, generators, graphs,
    memory_pools, garbage, cudart, comm, accelerator, debug_modes, device_type, facades, tensor_types, default_type,
)  # fmt: skip


def install(patches: Patches) -> None:
    """Patch torch.cuda and the C functions under it."""
    for subject in _SUBJECTS:
        for name, function in getattr(subject, "FUNCTIONS", {}).items():
            patches.set(torch._C, name, function)
        subject.install(patches)
