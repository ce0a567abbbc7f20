"""Uninitialised parameters, of `nn.LazyLinear` and similar modules, on a device.

Without a shape there is nothing to put on a device, so such a parameter stays on the host and remembers its device
(the attribute `_wanted_device`); it moves there when its shape is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import parameter as nn_parameter

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, replaced, wrapped
from fakegpu_lab.driver.base.privateuse1 import CUDA_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.tensor_api import conversion

if TYPE_CHECKING:
    from collections.abc import Callable


UninitializedTensorMixin = nn_parameter.UninitializedTensorMixin  # type: ignore[attr-defined]

_WANTED = "_wanted_device"
_materialize = UninitializedTensorMixin.materialize


def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`UninitializedParameter.to`: the dtype changes now, the device later."""
    device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
    where = "cpu"
    if device is not None:
        self.__dict__.pop(_WANTED, None)
        if current.is_ours(device):
            self.__dict__[_WANTED] = CUDA_DEVICES[current.device(device.index).index]
        else:
            where = str(device)
    if where == "cpu" and dtype in (None, self.dtype):
        return self
    with torch._C.DisableTorchFunctionSubclass():
        moved = conversion.to(self, where, dtype or self.dtype).as_subclass(type(self))
    moved.__dict__.update(self.__dict__)
    return moved


def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> torch.Tensor:
    """`UninitializedParameter.cuda`."""
    return to(self, "cuda" if device is None else torch.device("cuda", device) if isinstance(device, int) else device)


def cpu(self: torch.Tensor, memory_format: Any = None) -> torch.Tensor:
    """`UninitializedParameter.cpu`."""
    return to(self, "cpu")


def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
    """`UninitializedParameter.materialize`, on the remembered device."""
    where = self.__dict__.pop(_WANTED, None)
    if device is not None:
        where = torch.device(device)
    if not current.is_ours(where):
        _materialize(self, shape, device, dtype)
        return
    _materialize(self, 0, "cpu", dtype)
    self.data = torch.empty(shape, device=where, dtype=self.dtype)


def _device(self: torch.Tensor) -> torch.device:
    """`UninitializedParameter.device`: the remembered device, which on CUDA it would already be on."""
    return self.__dict__.get(_WANTED) or _base_device.__get__(self)  # type: ignore[no-any-return]


def _is_cuda(self: torch.Tensor) -> bool:
    """`UninitializedParameter.is_cuda`."""
    return _WANTED in self.__dict__ or bool(_base_is_cuda.__get__(self))


_base_device: Any = torch._C.TensorBase.device
_base_is_cuda: Any = torch._C.TensorBase.is_cuda


def _deepcopy(original: Callable[..., Any]) -> Callable[..., Any]:
    def deepcopy(self: torch.Tensor, memo: dict[int, Any]) -> Any:
        copied = original(self, memo)
        if _WANTED in self.__dict__:
            copied.__dict__[_WANTED] = self.__dict__[_WANTED]
        return copied

    return deepcopy


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    def new(cls: type, requires_grad: bool | None = None, device: Any = None, dtype: Any = None, **more: Any) -> Any:
        if requires_grad is not None:
            more["requires_grad"] = requires_grad
        default = torch.empty(0, device=device)  # `with torch.device("cuda")` counts too
        if default.__class__ is not FakeCudaTensor:
            return original(cls, device=device, dtype=dtype, **more)
        tensor = original(cls, device="cpu", dtype=dtype, **more)
        tensor.__dict__[_WANTED] = default.device
        return tensor

    return new


_LAZY = "torch.nn.parameter.UninitializedTensorMixin"
_WHY = "a parameter without a shape has a device"
CHANGES = [
    added(f"{_LAZY}.to", to, _WHY),
    added(f"{_LAZY}.cuda", cuda, _WHY),
    added(f"{_LAZY}.cpu", cpu, _WHY),
    replaced(f"{_LAZY}.materialize", materialize, _WHY),
    added(f"{_LAZY}.device", property(_device), _WHY),
    added(f"{_LAZY}.is_cuda", property(_is_cuda), _WHY),
    wrapped("torch.nn.parameter.UninitializedParameter.__deepcopy__", _deepcopy, _WHY),
    wrapped("torch.nn.parameter.UninitializedParameter.__new__", _new, _WHY),
    wrapped("torch.nn.parameter.UninitializedBuffer.__new__", _new, _WHY),
]
