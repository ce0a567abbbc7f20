"""Makes torch.optim and the gradient clippers know our devices, and group tensors under the device's CUDA name.

Everything else about optimizers is torch's own Python over ATen ops. On CUDA the default is foreach; C++ groups the
lists by the tensors' C++ devices, and the lists of devices that have foreach kernels end in PrivateUse1's name.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch  # noqa: F401 - TorchScript reads the wrapped functions' code, and looks up its names here

from fakegpu_lab.driver.base.changes import appended, computed, wrapped
from fakegpu_lab.driver.base.privateuse1 import NAME, as_cuda_device
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change

_LISTS = (
    "_get_foreach_kernels_supported_devices",
    "_get_fused_kernels_supported_devices",
    "_get_capturable_supported_devices",
)
"""Functions whose lists end in PrivateUse1's name; refusals print them (torch/utils/_foreach_utils.py)."""


def _grouped(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch._C._group_tensors_by_device_and_dtype` with CUDA devices as keys, which callers compare."""

    @functools.wraps(original)
    def group(tensor_lists: Any, with_indices: bool = False) -> dict[Any, Any]:
        groups = original(tensor_lists, with_indices)
        return {(as_cuda_device(device), dtype): group for (device, dtype), group in groups.items()}

    return group


def _named(original: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """A list of devices as a CUDA build of torch has it."""

    @functools.wraps(original)
    def devices(*args: Any, **kwargs: Any) -> list[str]:
        return ["privateuseone" if name == NAME else name for name in original(*args, **kwargs)]

    return devices


def _lists() -> list[Change]:
    """The lists of device types, in every module of torch that has imported them."""
    return [
        wrapped(f"{name}.{function}", _named, "the lists of device types name CUDA")
        for name, module in list(sys.modules.items())
        if name.startswith(("torch.optim.", "torch.utils._foreach"))
        for function in _LISTS
        if function in vars(module)
    ]


_FOR_EACH = "optimizers take their for-each way with device tensors"
CHANGES = [
    wrapped("torch._C._group_tensors_by_device_and_dtype", _grouped, "tensors are grouped by the device they show"),
    computed(_lists, "modules keep the functions that they have imported"),
    appended("torch.utils._foreach_utils._foreach_supported_types", FakeCudaTensor, _FOR_EACH),
    appended("torch.optim.optimizer._foreach_supported_types", FakeCudaTensor, _FOR_EACH),
]
