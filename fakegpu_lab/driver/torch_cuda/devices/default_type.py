"""``torch.set_default_tensor_type("torch.cuda.FloatTensor")``: factories without a device make CUDA tensors.

C++ keeps one default backend for the process, which every factory uses. Here a function mode fills in the device, like
that of `torch.set_default_device`, so the default only holds in the thread that set it. `torch.Tensor(2, 3)`, a
constructor that modes do not see, is patched while such a type is the default.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils._device
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import begun, in_cuda_builds
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES
from fakegpu_lab.driver.torch_cuda.devices import tensor_types

_set_default: Any = torch._C._set_default_tensor_type
_base_new: Any = torch._C.TensorBase.__new__


class _CudaByDefault(TorchFunctionMode):
    """Fills in the current device if a factory gets none and there is no `torch.device` context."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        devices = torch.utils._device
        without_device = kwargs.get("device") is None and devices.CURRENT_DEVICE is None
        if without_device and func in devices._device_constructors():
            kwargs["device"] = CUDA_DEVICES[current.device().index]
        return func(*args, **kwargs)


_mode = _CudaByDefault()
_active = False
_dtype_before = torch.float32


def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
    """``torch.Tensor(…)`` of the default type."""
    if cls is torch.Tensor and kwargs.get("device") is None:
        return tensor_types.make(torch.get_default_dtype(), *args, **kwargs)
    return _base_new(cls, *args, **kwargs)


def set_default_tensor_type(kind: Any) -> None:
    """``torch._C._set_default_tensor_type``, also for CUDA's types (python_tensor.cpp).

    Raises
    ------
    TypeError
        The type is not a floating-point one.
    """
    global _active, _dtype_before
    if not isinstance(kind, tensor_types.tensortype):
        _set_default(kind)
        _leave()
        return
    if not kind.dtype.is_floating_point:
        raise TypeError("only floating-point types are supported as the default type")
    if not _active:
        _dtype_before = torch.get_default_dtype()
        _push_mode(_mode)  # type: ignore[no-untyped-call]
        torch.Tensor.__new__ = staticmethod(_new)  # type: ignore[method-assign]
        _active = True
    _set_default(getattr(torch, kind.__name__))


def _leave() -> None:
    """Make CPU tensors the default again."""
    global _active
    if not _active:
        return
    _active = False
    del torch.Tensor.__new__
    stack = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]  # type: ignore[no-untyped-call]
    for mode in reversed(stack):
        if mode is not _mode:
            _push_mode(mode)  # type: ignore[no-untyped-call]


def restore() -> None:
    """Undo a default of CUDA, also by `torch.set_default_device`: without a machine no factory would work."""
    if _active:
        _leave()
        torch.set_default_dtype(_dtype_before)
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    if default is not None and current.is_ours(default.device):
        torch.set_default_device(None)


FUNCTIONS = {"_set_default_tensor_type": set_default_tensor_type}


CHANGES = [*in_cuda_builds(FUNCTIONS), begun(lambda: restore, "the defaults are as before when the machine is gone")]
