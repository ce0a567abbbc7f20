"""Users' subclasses of torch.Tensor on a device: ``MyTensor(...).cuda()`` stays a MyTensor.

The dispatch path checks ``tensor.__class__ is FakeCudaTensor``. So a subclass of both the user's class and ours is
made, whose instances return `FakeCudaTensor` for ``__class__``; ``type(tensor)`` and ``isinstance`` see both.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

_HOST = "_subclass_on_the_host"
_set_class = object.__dict__["__class__"].__set__
_base_as_subclass: Any = torch._C.TensorBase.as_subclass


class _Last(FakeCudaTensor):
    """Has torch.Tensor's `__torch_function__`, which keeps the class, for a user's ``super().__torch_function__``."""


# Set after the class is made, because torch disables it when it makes a class with a `__torch_dispatch__`.
_Last.__torch_function__ = classmethod(torch.Tensor.__torch_function__.__func__)  # type: ignore[attr-defined, assignment]


@cache
def on_device(cls: type[torch.Tensor]) -> type[torch.Tensor]:
    """The class of a `cls` on a device."""
    members = {"__class__": FakeCudaTensor, "__module__": cls.__module__, "__qualname__": cls.__qualname__, _HOST: cls}
    function: Any = cls.__torch_function__
    metaclass: Any = type(cls)
    double = metaclass(cls.__name__, (cls, _Last), members)
    # Set now, because torch disables it when it makes a class with a `__torch_dispatch__`.
    double.__torch_function__ = classmethod(function.__func__)
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
        alias = torch.ops.aten.alias.default(self)
    if cls not in (torch.Tensor, FakeCudaTensor):
        _set_class(alias, on_device(cls))
    return alias  # type: ignore[no-any-return]


CHANGES = [replaced("torch.Tensor.as_subclass", as_subclass, "subclasses of programs can be device tensors")]
