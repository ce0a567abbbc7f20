"""The torch.cuda surface: what its Python code asks of torch's C++ half, answered by the simulated machine.

torch/cuda/*.py runs unmodified. Each module here has one subject, gives the C functions of that subject under torch's
own names (``FUNCTIONS``, set on ``torch._C``), and an `install` for what else Python bound when a CPU build was
imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from fakegpu_lab.driver.torch_cuda import (
    accelerator,
    build,
    comm,
    cudart,
    default_type,
    device,
    device_type,
    facades,
    flags,
    generators,
    graphs,
    history,
    lifecycle,
    memory,
    properties,
    streams,
    tensor_types,
    unsupported,
)

if TYPE_CHECKING:
    from fakegpu_lab.driver.patches import Patches

_SUBJECTS = (
    unsupported, lifecycle, build, flags, device, properties, memory, history, streams, generators, graphs, cudart,
    comm, accelerator, device_type, facades, tensor_types, default_type,
)  # fmt: skip


def install(patches: Patches) -> None:
    """Patch torch.cuda and the C functions under it."""
    for subject in _SUBJECTS:
        for name, function in getattr(subject, "FUNCTIONS", {}).items():
            patches.set(torch._C, name, function)
        subject.install(patches)
