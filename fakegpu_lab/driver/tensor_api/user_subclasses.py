"""Users' subclasses of torch.Tensor and of Parameter on a device: ``MyTensor(...).cuda()`` stays a MyTensor.

The dispatch path checks ``tensor.__class__ is FakeCudaTensor``. So a subclass of both the user's class and ours is
made, whose instances return `FakeCudaTensor` for ``__class__``; ``type(tensor)`` and ``isinstance`` see both.
"""

from __future__ import annotations

import functools
from functools import cache
from typing import Any

import torch

from fakegpu_lab.driver.base.changes import added, replaced
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

_HOST = "_subclass_on_the_host"
_set_class = object.__dict__["__class__"].__set__
_base_as_subclass: Any = torch._C.TensorBase.as_subclass
_base_make_subclass: Any = torch.Tensor._make_subclass
_base_new: Any = torch.Tensor.__new__
_parameter_new: Any = torch.nn.Parameter.__new__


class _Last(FakeCudaTensor):
    """Has torch.Tensor's `__torch_function__`, which keeps the class, for a user's ``super().__torch_function__``."""


# Set after the class is made, because torch disables it when it makes a class with a `__torch_dispatch__`.
_Last.__torch_function__ = classmethod(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined, assignment]


@cache
def on_device(cls: type[torch.Tensor]) -> type[torch.Tensor]:
    """The class of a `cls` on a device."""
    members = {"__class__": FakeCudaTensor, "__module__": cls.__module__, "__qualname__": cls.__qualname__, _HOST: cls}
    for name in ("__repr__", "__reduce_ex__"):
        if getattr(cls, name) is getattr(torch.nn.Parameter, name):
            members[name] = getattr(FakeCudaTensor, name)
    function: Any = cls.__torch_function__
    metaclass: Any = type(cls)
    double = metaclass(cls.__name__, (cls, _Last), members)
    # Set now, because torch disables it when it makes a class with a `__torch_dispatch__`.
    double.__torch_function__ = classmethod(function.__func__) if hasattr(function, "__func__") else function
    return double  # type: ignore[no-any-return]


def on_host(cls: type[torch.Tensor]) -> type[torch.Tensor]:
    """The user's class, given that class or its double on a device."""
    return getattr(cls, _HOST, cls)


def as_subclass(self: torch.Tensor, cls: type[torch.Tensor]) -> torch.Tensor:
    """`Tensor.as_subclass`: an alias of the tensor, of the class `cls`."""
    cls = on_host(cls)
    if self.__class__ is not FakeCudaTensor:
        return _base_as_subclass(self, cls)  # type: ignore[no-any-return]
    with torch._C.DisableTorchFunctionSubclass():
        return of_class(torch.ops.aten.alias.default(self), cls)


def of_class(tensor: torch.Tensor, cls: type[torch.Tensor]) -> torch.Tensor:
    """A new device tensor, made one of the class `cls`."""
    if issubclass(cls, torch.nn.Parameter):
        tensor.__dict__["_is_param"] = True
    if cls not in (torch.Tensor, torch.nn.Parameter, FakeCudaTensor):
        _set_class(tensor, on_device(cls))
    return tensor


@functools.wraps(_base_make_subclass)
def make_subclass(cls: Any, data: torch.Tensor, require_grad: bool = False, **options: Any) -> torch.Tensor:
    """`Tensor._make_subclass`: the data of a tensor in one of the class `cls`."""
    cls = on_host(cls)
    if data.__class__ is not FakeCudaTensor:
        return _base_make_subclass(cls, data, require_grad, **options)  # type: ignore[no-any-return]
    with torch._C.DisableTorchFunctionSubclass():
        return of_class(data.detach().requires_grad_(require_grad), cls)


@functools.wraps(_base_new)  # Dynamo compares signatures
def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """``MyTensor(tensor)``."""
    cls = on_host(cls)
    if len(args) == 1 and args[0].__class__ is FakeCudaTensor and cls is not torch.Tensor:
        return as_subclass(args[0], cls)
    return _base_new(cls, *args, **kwargs)


@functools.wraps(_parameter_new)
def new_parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
    """``MyParameter(tensor)``."""
    cls = on_host(cls)
    made = _parameter_new(cls, data, requires_grad)
    return of_class(made, cls) if made.__class__ is FakeCudaTensor else made


_WHY = "subclasses of programs can be device tensors"
CHANGES = [
    replaced("torch.Tensor.as_subclass", as_subclass, _WHY),
    replaced("torch.Tensor._make_subclass", staticmethod(make_subclass), _WHY),
    added("torch.Tensor.__new__", staticmethod(new), _WHY),
    replaced("torch.nn.Parameter.__new__", staticmethod(new_parameter), _WHY),
]
