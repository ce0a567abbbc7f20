"""Moves tensors, and tensor objects themselves, between host and devices: ``.to``, ``.data =``, `nn.Module.to`.

On CUDA, ``param.data = param.cuda()`` changes the tensor behind an object and keeps the object. Here tensors on host
and device have different Python classes, so the object's class and attributes change with it (`become`).
"""

from __future__ import annotations

from typing import Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import replaced
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES, DeviceClass
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, SparseCudaTensor
from fakegpu_lab.driver.tensor_api import user_subclasses

_set_class = object.__dict__["__class__"].__set__
_base_to = torch._C.TensorBase.to
_base_data = torch._C.TensorBase.data


def cpp_device(where: Any) -> Any:
    """A device for C++: our own for ``cuda``, anything else unchanged."""
    if isinstance(where, str):
        if not where.startswith("cuda"):
            return where
        where = torch.device(where)
    if where.__class__ is DeviceClass and where.type == "cuda":
        return CPP_DEVICES[current.device(where.index).index]
    if where.__class__ is int:
        return CPP_DEVICES[ordinal(where)]
    return where


def ordinal(index: int) -> int:
    """An index used as a device (python_arg_parser.h, toDevice); raises if it is negative or too large."""
    if index < 0:
        raise RuntimeError("Device index must not be negative")
    return current.device(index).index


def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """`Tensor.to` that understands ``cuda`` with and without an index.

    C++ would ask the CUDA device guard for the current device, which a CPU build does not have.
    """
    __tracebackhide__ = True
    if args:
        first = args[0]
        if first.__class__ is str or first.__class__ is DeviceClass:
            args = (cpp_device(first), *args[1:])
        elif first.__class__ is int and not isinstance(first, bool):
            args = (CPP_DEVICES[ordinal(first)], *args[1:])
    elif "device" in kwargs:
        kwargs["device"] = cpp_device(kwargs["device"])
    return _base_to(self, *args, **kwargs)


def cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> torch.Tensor:
    """`Tensor.cuda`."""
    __tracebackhide__ = True
    if device is None:
        where = current.device()
    elif isinstance(device, int):
        where = current.device(ordinal(device))
    else:
        device = torch.device(device)
        if device.type != "cuda":
            raise RuntimeError("Invalid device, must be cuda device")
        where = current.device(device.index)
    target = CPP_DEVICES[where.index]
    if memory_format is None:
        return _base_to(self, target, non_blocking=non_blocking)
    return _base_to(self, target, non_blocking=non_blocking, memory_format=memory_format)


STORAGE_ATTRIBUTES = ("_inner", "_buffer", "_device", "_unusual")
"""Attributes that belong to the storage, not to the Python object."""


def become(target: torch.Tensor, source: torch.Tensor) -> None:
    """Exchange the tensors behind two Python objects, one on the host and one on a device.

    Like `torch.utils.swap_tensors`, without its refusals: a weak reference follows the Python object, and a live graph
    keeps the old C++ tensor, as on CUDA, where `set_data` drops the gradient accumulator of a tensor that moves.
    Attributes that users set, and hooks, stay with their object; its class changes with the side that it is on.
    """
    hooks = [(tensor, tensor._backward_hooks, tensor._post_accumulate_grad_hooks) for tensor in (target, source)]
    classes = _class_like(target, source), _class_like(source, target)
    storages = [{k: t.__dict__.pop(k) for k in STORAGE_ATTRIBUTES if k in t.__dict__} for t in (target, source)]
    torch._C._swap_tensor_impl(target, source)
    for tensor, cls, storage in zip((target, source), classes, reversed(storages), strict=True):
        if type(tensor) is not cls:
            _set_class(tensor, cls)
        tensor.__dict__.update(storage)
    for tensor, before, after in hooks:
        tensor._backward_hooks = before
        tensor._post_accumulate_grad_hooks = after


def _class_like(tensor: torch.Tensor, other: torch.Tensor) -> type[torch.Tensor]:
    """The class of `tensor`'s object once it is on the side of `other`."""
    cls = user_subclasses.on_host(type(tensor))
    if other.__class__ is FakeCudaTensor:
        if isinstance(tensor, torch.nn.Parameter):
            tensor.__dict__["_is_param"] = True
        if type(other) is SparseCudaTensor:
            return SparseCudaTensor
        plain = cls in (torch.Tensor, torch.nn.Parameter, FakeCudaTensor)
        return FakeCudaTensor if plain else user_subclasses.on_device(cls)
    is_parameter = tensor.__dict__.pop("_is_param", False)
    if cls is not FakeCudaTensor:
        return cls
    return torch.nn.Parameter if is_parameter else torch.Tensor


def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
    """`torch.utils.swap_tensors`, also for device tensors with weak references and live graphs."""
    ours = t1.__class__ is FakeCudaTensor, t2.__class__ is FakeCudaTensor
    if all(ours):
        old, grad = t1.detach(), t1.requires_grad
        set_data(t1, t2.detach())
        t1.requires_grad_(t2.requires_grad)
        set_data(t2, old)
        t2.requires_grad_(grad)
    elif any(ours):
        become(t1, t2)
    else:
        _swap_tensors(t1, t2)  # type: ignore[no-untyped-call]


_swap_tensors = torch.utils.swap_tensors


def set_data(self: torch.Tensor, new: torch.Tensor) -> None:
    """``tensor.data = new``, also between host and device."""
    ours, theirs = self.__class__ is FakeCudaTensor, new.__class__ is FakeCudaTensor
    if ours and theirs:
        try:
            _base_data.__set__(self, new)  # type: ignore[attr-defined]
        except RuntimeError:  # "incompatible tensor type": a conjugate view, which C++ accepts on CUDA
            requires_grad = self.requires_grad
            become(self, new.detach())
            self.requires_grad_(requires_grad)
            return
        for name in STORAGE_ATTRIBUTES:
            if name in new.__dict__:
                self.__dict__[name] = new.__dict__[name]
            else:
                self.__dict__.pop(name, None)
    elif ours or theirs:
        grad, requires_grad = self.grad, self.requires_grad
        if grad is not None:  # C++ refuses a gradient on another device, so it moves along
            set_data(grad, _base_to(grad, CPP_DEVICES[new._device.index] if theirs else torch.device("cpu")))  # type: ignore[attr-defined]
        become(self, (new if grad is None else grad).detach())
        self.requires_grad_(requires_grad)
        if grad is not None:  # which it also refuses if its size is not the new one, as FSDP's is not
            self.grad = grad
            set_data(self, new)
    else:
        _base_data.__set__(self, new)  # type: ignore[attr-defined]


def get_data(self: torch.Tensor) -> torch.Tensor:
    """``tensor.data``."""
    return _base_data.__get__(self)  # type: ignore[attr-defined, no-any-return]


data = property(get_data, set_data)


def has_compatible_shallow_copy_type(input: torch.Tensor, from_: torch.Tensor) -> bool:  # noqa: A002 - dynamo's check
    """`torch._has_compatible_shallow_copy_type`: whether `nn.Module.to` may write ``param.data = moved``.

    On CUDA it may, and the Parameter keeps its identity; `set_data` does the same here. Simplified: not if a profiler
    that records shapes has seen the parameter, because C++ exchanges no tensor to which it has weak references.
    """
    ours = input.__class__ is FakeCudaTensor, from_.__class__ is FakeCudaTensor
    if any(ours):
        return all(ours) or not torch._C._autograd._profiler_enabled() or _is_exchangeable(input)
    return _has_compatible_shallow_copy_type(input, from_)


def _is_exchangeable(tensor: torch.Tensor) -> bool:
    other = torch.empty(0)
    try:
        torch._C._swap_tensor_impl(tensor, other)
    except RuntimeError:
        return False
    torch._C._swap_tensor_impl(tensor, other)
    return True


_has_compatible_shallow_copy_type = torch._has_compatible_shallow_copy_type


CHANGES = [
    replaced("torch.Tensor.to", to, "'cuda' is a simulated device"),
    replaced("torch.Tensor.cuda", cuda, "'cuda' is a simulated device"),
    replaced("torch.Tensor.data", data, "a device tensor's data are a device tensor"),
    replaced("torch._has_compatible_shallow_copy_type", has_compatible_shallow_copy_type, "modules move in place"),
    replaced("torch.utils.swap_tensors", swap_tensors, "a swapped tensor keeps its memory"),
]
