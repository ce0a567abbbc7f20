"""Makes nested tensors on a device, of tensors of the host or of a device, and moves them there."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import replaced, wrapped
from fakegpu_lab.driver.base.device_memory import new, take_bytes
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, NestedCudaTensor, tensors_of, wrap_nested, wrap_view_of
from fakegpu_lab.driver.copies.transfer import count_copy, usable
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.work import streaming
from fakegpu_lab.driver.ops.nested.computing import unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.hardware.device import Device

_nested: Any = torch._C._nested  # type: ignore[attr-defined]


def made(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A nested tensor of device tensors; the sizes are on the host."""
    device = next(usable(t)._device for t in tensors_of(args) if t.__class__ is FakeCudaTensor)
    inner = [unwrapped(value) for value in args]
    if op.name == "_nested_tensor_from_tensor_list":
        inner = inner[:2]  # without layout, device and pin_memory
        kwargs = {name: value for name, value in kwargs.items() if name == "dtype"}
    if op.name.startswith("_nested_tensor_from_mask"):
        count_copy(device, None, args[0].shape[0] * 16)  # the sizes, which the host must know
    result = op.func._op(*inner, **kwargs)
    if not isinstance(result, torch.Tensor):
        return result
    if op.is_view:
        return wrap_view_of(args[0], result)
    made = new(result, device)
    kernel(device, streaming(device, (), result, result.nbytes))
    return made


def moved(source: torch.Tensor, device: Device, dtype: torch.dtype | None = None) -> NestedCudaTensor:
    """A copy of a nested tensor of the host on a device."""
    if device.retired:
        raise device_asserts.retired_error(device)
    inner = source.to(dtype or source.dtype, copy=True)
    buffer = take_bytes(device, inner.nbytes)
    count_copy(None, device, inner.nbytes)
    return wrap_nested(inner, device, buffer)


def to_copy(
    source: torch.Tensor, *, dtype: torch.dtype | None = None, device: torch.device, **options: Any
) -> NestedCudaTensor:
    """``aten::_to_copy`` of a nested tensor of the host to a device."""
    return moved(source, current.device(device.index), dtype)


def _constructor(function: Callable[..., Any]) -> Callable[..., Any]:
    """A constructor of strided nested tensors that can put them on a device, or make them of a device's tensors."""

    @wraps(function)
    def constructor(data: Any, *args: Any, **kwargs: Any) -> Any:
        where = kwargs.get("device")
        there = [tensor for tensor in tensors_of(data) if tensor.__class__ is FakeCudaTensor]
        if (where is not None and not _is_ours(where)) or (where is None and not there):
            return function(data, *args, **kwargs)
        made = function(unwrapped(data), *args, **{**kwargs, "device": "cpu"})
        index = torch.device(where).index if where is not None else there[0]._device.index
        device = current.device(index)
        if there:
            result: torch.Tensor = new(made.detach(), device)
            kernel(device, streaming(device, (), made, made.nbytes))
        else:
            result = moved(made.detach(), device)
        return result.requires_grad_(made.requires_grad)

    return constructor


def _is_ours(where: Any) -> bool:
    return current.is_ours(torch.device(where))


def from_tensor_list(tensors: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin: Any = None) -> Any:
    """``torch._nested_tensor_from_tensor_list``, of the host's tensors for a device, too."""
    if device is not None and _is_ours(device) and not any(t.__class__ is FakeCudaTensor for t in tensors):
        return _from_tensor_list(tensors, dtype, layout, None, pin).to(device)
    on_device = device is None or not _is_ours(device)
    return _from_tensor_list(tensors, dtype, layout, device if on_device else None, pin)


_from_tensor_list: Any = torch._nested_tensor_from_tensor_list


CHANGES = [
    wrapped("torch._C._nested.nested_tensor", _constructor, "nested tensors on the device"),
    replaced("torch._nested_tensor_from_tensor_list", from_tensor_list, "nested tensors on the device"),
]
