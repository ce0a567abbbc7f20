"""Adds the index to ``device="cuda"`` for constructors that would ask C++'s CUDA device guard for the current device.

A CPU build has no such guard. (All other factories reach `dispatch.registered_kernels` without an index, and need
nothing.)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._device

from fakegpu_lab.driver.base import cuda_messages, current
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES, DeviceClass
from fakegpu_lab.driver.tensor_api import conversion

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.patches import Patches

_FUNCTIONS = ("tensor", "as_tensor", "asarray", "frombuffer")
_SPARSE = ("sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor", "sparse_bsc_tensor",
           "sparse_compressed_tensor")  # fmt: skip
"""Constructors that enter a device's guard first: they get our C++ device."""
_METHODS = ("new_tensor",)


def with_index(where: Any) -> Any:
    """``cuda`` as ``cuda:<current>``; any other device unchanged."""
    if where.__class__ is str:
        if where != "cuda":
            return where
    elif not (where.__class__ is DeviceClass and where.type == "cuda" and where.index is None):
        return where
    return CUDA_DEVICES[current.device().index]


def _indexed(function: Callable[..., Any], index: Callable[[Any], Any] = with_index) -> Callable[..., Any]:
    @functools.wraps(function)
    def constructor(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if kwargs.get("device") is not None:
            kwargs["device"] = index(kwargs["device"])
        return function(*args, **kwargs)

    return constructor


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.new`, which C++ runs under a device guard for the tensor's device (THPVariable_new)."""

    @functools.wraps(original)
    def new(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_cuda:
            return original(self, *args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = conversion.cpp_device(kwargs["device"])
        if len(args) == 1 and isinstance(args[0], (list, tuple)) and not isinstance(args[0], torch.Size):
            return torch.tensor(args[0], dtype=self.dtype, device=self.device)
        before, current.thread.index = current.thread.index, self.device.index
        try:
            return original(self, *args, **kwargs)
        except (RuntimeError, TypeError) as error:
            raise cuda_messages.with_cuda_name(error) from None
        finally:
            current.thread.index = before

    return new


def _device_context(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.utils._device.DeviceContext.__torch_function__` (``with torch.device("cuda")``), index filled in."""

    def torch_function(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.device.type == "cuda" and self.device.index is None:
            kwargs = dict(kwargs or {})
            if kwargs.get("device") is None and func in torch.utils._device._device_constructors():
                kwargs["device"] = CUDA_DEVICES[current.device().index]
        return original(self, func, types, args, kwargs)

    return torch_function


def install(patches: Patches) -> None:
    """Patch the constructors."""
    torch.utils._device._device_constructors()  # cached for good, so it must see torch's functions, not our wrappers
    for name in _FUNCTIONS:
        patches.wrap_function(name, _indexed)
    for name in _SPARSE:
        patches.wrap_function(name, functools.partial(_indexed, index=conversion.cpp_device))
    for name in _METHODS:
        patches.set(torch.Tensor, name, _indexed(getattr(torch.Tensor, name)))
    patches.set(torch.Tensor, "new", _new(torch.Tensor.new))
    context = torch.utils._device.DeviceContext
    patches.set(context, "__torch_function__", _device_context(context.__torch_function__))
