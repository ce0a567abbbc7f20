"""What runs an op with nested operands, and what its kernel costs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.tensor import (
    FakeCudaTensor,
    NestedCudaTensor,
    inner_of,
    tensors_of,
    wrap_nested,
    wrap_view,
    wrap_view_of,
)
from fakegpu_lab.driver.copies.transfer import usable
from fakegpu_lab.driver.cost import matrix_products
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.work import Work, nbytes_of, streaming
from fakegpu_lab.driver.ops.nested import attention

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.hardware.device import Device

_any_nested: list[bool] = []
NestedCudaTensor.on_first.append(partial(_any_nested.append, True))

_ON_THE_HOST = frozenset(("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets"))
"""Ops whose results are on the host, for nested tensors on a device, too."""
_PRODUCTS = frozenset(("linear", "addmm", "matmul", "mm", "bmm", "baddbmm"))
_AS_ANY_TENSOR = frozenset((
    "_to_copy", "copy_", "record_stream", "is_pinned", "pin_memory", "_pin_memory", "_transformer_encoder_layer_fwd",
    "_native_multi_head_attention",
))  # fmt: skip
"""Ops whose handlers take nested tensors, too: those of `copies.transfer` and `encoder_layer`."""


def computing(op: Op, plan: Plan) -> Plan:
    """`plan`, or for nested tensors another one; unchanged before the first of them is made."""
    if not _any_nested or op.name in _AS_ANY_TENSOR:
        return plan

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(type(tensor) is NestedCudaTensor for tensor in tensors_of(args)):
            return _compute(op, args, kwargs)
        return plan(args, kwargs)

    return run


def _compute(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an op with a nested operand on its device."""
    if op.name == "scaled_dot_product_attention":  # in inference mode, it comes here in one piece
        return attention.scaled_dot_product_attention(
            lambda _, *args, **kwargs: op.decomposed(args, kwargs), None, *args, **kwargs
        )
    device = _device_of(op, args, kwargs)
    if op.name == "native_dropout":
        return _dropout(device, *args)
    inner_args = [unwrapped(value) for value in args]
    inner_kwargs = {name: unwrapped(value) for name, value in kwargs.items()}
    where = inner_kwargs.pop("device", None)
    inner_kwargs.pop("pin_memory", None)
    result = op.func._op(*inner_args, **inner_kwargs)
    if op.name in _ON_THE_HOST or (where is not None and not current.is_ours(where)):
        return result
    if op.launches:
        kernel(device, _work(op, device, inner_args, result))
    if op.written:
        return args[0] if not op.outs else kwargs["out"]
    return _wrapped(result, args[0] if op.is_view else None, device)


def _device_of(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Device:
    tensors = [tensor for tensor in tensors_of([*args, *kwargs.values()]) if tensor.dim()]
    devices = {tensor.device for tensor in tensors}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, {names}!")
    return usable(next(tensor for tensor in tensors if tensor.__class__ is FakeCudaTensor))._device


def unwrapped(value: Any) -> Any:
    """Inner tensors in place of device tensors, also in lists."""
    return [unwrapped(item) for item in value] if isinstance(value, (list, tuple)) else inner_of(value)


def _wrapped(value: Any, base: FakeCudaTensor | None, device: Device) -> Any:
    """Results on the device: views of `base`, or with memory of their own."""
    if isinstance(value, torch.Tensor):
        return new(value, device) if base is None else wrap_view_of(base, value)
    if isinstance(value, (list, tuple)):
        return type(value)(_wrapped(item, base, device) for item in value)
    return value


def _work(op: Op, device: Device, inner: list[Any], result: Any) -> Work:
    """What the op's kernel costs: what a product multiplies, as one of matrices, or what it reads and writes."""
    tensors = list(tensors_of(inner))
    nbytes = sum(tensor.nbytes for tensor in tensors)
    if op.name in _PRODUCTS:
        left = tensors[1 if op.name in ("addmm", "baddbmm") else 0]
        depths = [item.shape[-1] for item in (left.unbind() if left.is_nested else [left])]
        items = result.unbind() if result.is_nested else [result]
        n, k = max(item.shape[-1] for item in items), max(depths)
        multiplied = sum(item.numel() * depth for item, depth in zip(items, depths, strict=False))
        rows = multiplied // max(n * k, 1)
        return matrix_products.product(device, result.dtype, rows, n, k, nbytes=nbytes + nbytes_of(result))
    return streaming(device, (), result, nbytes)


def _dropout(device: Device, source: FakeCudaTensor, p: float, train: bool | None = True) -> Any:
    """``native_dropout``, with the random numbers of a tensor of as many elements."""
    flat = new(torch.cat([item.reshape(-1) for item in source._inner.unbind()]), device)
    return tuple(_like(source, values) for values in torch.native_dropout(flat, p, train))


def _like(source: FakeCudaTensor, flat: torch.Tensor) -> NestedCudaTensor:
    """The values `flat` in the sizes of `source`."""
    pieces = flat._inner.split([item.numel() for item in source._inner.unbind()])  # type: ignore[attr-defined]
    items = [piece.view(item.shape) for piece, item in zip(pieces, source._inner.unbind(), strict=True)]
    inner = torch._nested_tensor_from_tensor_list(items)
    return wrap_nested(inner, flat._device, flat._buffer)  # type: ignore[attr-defined]


def by_rows(source: torch.Tensor, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`compute` of a tensor, or of the rows of all tensors of a nested one, which lie one after the other.

    Only for functions that treat every row alike; not differentiable.
    """
    if type(source) is not NestedCudaTensor:
        return compute(source)
    items = source._inner.unbind()
    rows = wrap_view(torch.cat(list(items)), source._device, source._buffer)
    result = compute(rows)
    values: torch.Tensor = result._inner  # type: ignore[attr-defined]
    parts = torch.split_with_sizes(values, [len(item) for item in items])
    inner = torch._nested_tensor_from_tensor_list(list(parts))
    return wrap_nested(inner, result._device, result._buffer)  # type: ignore[attr-defined]
