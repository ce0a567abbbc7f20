"""Sparse tensors on a device: the memory of their parts, and the ops that build them or return their parts.

A sparse tensor has no storage. Its indices and values are tensors with storages, which a program may hold on their own
(``s.values()``). So the parts of the inner tensor get device storages (`storage.adopt`), which hold the memory: a part
is counted once, as long as anything uses it, as on CUDA.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.device_memory import sparse_parts, storage_bytes, take_bytes
from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, SparseCudaTensor, wrap, wrap_view
from fakegpu_lab.driver.copies.transfer import usable
from fakegpu_lab.driver.cost.launching import kernel
from fakegpu_lab.driver.cost.work import streaming
from fakegpu_lab.driver.dispatch import general_path
from fakegpu_lab.driver.tensor_api import storage
from fakegpu_lab.hardware.buffer import Buffer

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.hardware.device import Device

_any_sparse: list[bool] = []
SparseCudaTensor.on_first.append(partial(_any_sparse.append, True))


def adopt_parts(inner: torch.Tensor, device: Device) -> Buffer:
    """Give the parts of a sparse inner tensor device memory, unless they have it; returns the tensor's empty buffer."""
    for part in sparse_parts(inner):
        _buffer(part, device)
    return Buffer(device, 0)


def _buffer(part: torch.Tensor, device: Device) -> Buffer:
    host = part.untyped_storage()
    if host.__class__ is not storage.DeviceStorage:
        host = storage.adopt(host, take_bytes(device, host.nbytes()))
    return host._buffer


SparseCudaTensor._adopt_parts = staticmethod(adopt_parts)


def adopting_new_parts(op: Op, plan: Plan) -> Plan:
    """`plan`, followed by memory for the parts that it writes; unchanged before the first sparse tensor."""
    if not (_any_sparse and op.written):
        return plan

    def writing(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = plan(args, kwargs)
        if type(result) is SparseCudaTensor:
            adopt_parts(result._inner, result._device)
        return result

    return writing


_SUMS = {"add": 1, "add_": 1, "sub": -1, "sub_": -1}
_PRODUCTS = ("mul", "mul_", "multiply", "multiply_")


def as_cuda_computes(op: Op, plan: Plan) -> Plan:
    """`plan`, or CUDA's way to add sparse tensors; refused where the CPU has no kernel."""
    if not _any_sparse or not (op.name in _SUMS or op.name in _PRODUCTS or op.name == "_sparse_sparse_matmul"):
        return plan
    sums = copy.copy(op)
    sums.call = partial(_sum, op)
    add = general_path.plan(sums)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second = args[:2]
        if not isinstance(second, torch.Tensor) or SparseCudaTensor not in (type(first), type(second)):
            return plan(args, kwargs)
        if op.name in _SUMS and first.layout is torch.sparse_coo and second.layout is torch.sparse_coo:
            return add(args, kwargs)
        dtype = torch.result_type(first, second)
        booleans = op.name in _PRODUCTS and dtype is torch.bool and type(first) is type(second)
        if booleans or (op.name not in _PRODUCTS and dtype in HALVES):
            raise not_simulated.error("sparse kernels")
        return plan(args, kwargs)

    return run


def _sum(op: Op, first: torch.Tensor, second: torch.Tensor, alpha: complex = 1, out: Any = None) -> torch.Tensor:
    """add_out_sparse_cuda: the entries of both, one after the other; nothing is added up before ``coalesce()``."""
    target = out if out is not None else first if op.written else None
    dtype = torch.result_type(first, second)
    known = (first.sparse_dim(), first.shape) == (second.sparse_dim(), second.shape)
    if not known or (target is not None and not torch.can_cast(dtype, target.dtype)):
        return op.func._op(first, second, alpha=alpha, **({} if out is None else {"out": out}))  # type: ignore[no-any-return]
    factor = alpha * _SUMS[op.name]
    added = second._values().to(dtype)
    indices = torch.cat([first._indices(), second._indices()], 1)
    values = torch.cat([first._values().to(dtype), added if factor == 1 else added * factor])
    result = torch.sparse_coo_tensor(indices, values, first.shape, is_coalesced=False, check_invariants=False)
    if target is not None and target.dtype is not dtype:
        result = result.coalesce().to(target.dtype)
    if not (first._nnz() and second._nnz()):  # a copy of the other one
        result._coalesced_((first if first._nnz() else second).is_coalesced())
    elif result._nnz() > result.numel():
        result = result.coalesce()
    return result if target is None else target.copy_(result)


def layout(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.layout:
    """``prim::layout``: the layout of a tensor that was made with ``dispatch_layout``."""
    return args[0]._inner.layout  # type: ignore[no-any-return]


QUERIES = {torch.ops.prim.layout.default: layout}
"""Calls from C++ that are not ops and have no schema in the dispatcher."""


def part(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``indices()``, ``values()`` and so on: a view with the part's own memory."""
    if args[0].__class__ is not FakeCudaTensor:
        return NotImplemented  # a jagged tensor has `values`, too
    source = usable(args[0])
    inner = op.func._op(source._inner)
    return wrap_view(inner, source._device, _buffer(inner, source._device))


def from_parts(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A sparse tensor that uses the memory of its parts; parts that C++ converts or copies get their own."""
    for argument in args:
        if argument.__class__ is FakeCudaTensor:
            storage.of(usable(argument))
    return general_path.run(op, args, kwargs)


def to_dense(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``to_dense()``: takes all its memory on the device before the host computes."""
    source = usable(args[0])
    device, inner = source._device, source._inner
    dtype = args[1] if len(args) > 1 else kwargs.get("dtype")
    buffer = take_bytes(device, inner.numel() * (dtype or inner.dtype).itemsize)
    dense = op.func._op(inner, *args[1:], **kwargs)
    kernel(device, streaming(device, (), dense, storage_bytes(inner)))
    return wrap(dense, device, buffer)
