"""The path for every schema: lists, keyword tensors, ``out=``, several results, random numbers, mixed devices.

`dispatcher` has flat plans for the most frequent kinds of ops; everything else, and every error, takes this path.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.metadata import bump_versions, sync_metadata
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, dispatches_itself, wrap, wrap_view_of
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.workspace import ensure_workspace
from fakegpu_lab.driver.dispatch import custom_ops
from fakegpu_lab.driver.placement import device_check, dtypes
from fakegpu_lab.driver.placement.memory_preflight import SMALL, reserve, reserve_outs, reserve_resized
from fakegpu_lab.driver.random import sampling

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan
    from fakegpu_lab.hardware.buffer import Buffer
    from fakegpu_lab.hardware.device import Device


def plan(op: Op) -> Plan:
    """The general plan of an op."""
    return partial(run, op)


def special(op: Op) -> Plan | None:
    """The plan of an op that is not a kernel on one device, such as a copy between devices; else None."""
    refused = dtypes.plan(op)
    if refused is not None:
        return refused
    if op.row.runs is not None:
        return _into_outs(op) if op.outs else partial(op.row.runs, op)
    if op.random and sampling.decomposes(op):
        return op.decomposed
    custom = custom_ops.plan(op)
    if custom is not None:
        return custom
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.func.name(), "CompositeImplicitAutograd")
    if composite and "sparse" not in op.name:  # C++ would make a sparse tensor that is not ours
        # C++ did not decompose the composite, because it was called below autograd (for example in inference mode).
        return op.decomposed
    return None


def _into_outs(op: Op) -> Plan:
    """The ``out=`` form of an op that has a plan of its own: its results are copied, as torch's generated code does."""
    functional = op.func.overloadpacket.default

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        outs = [kwargs[name] for name in op.outs]
        results = functional(*args, **{name: value for name, value in kwargs.items() if name not in op.outs})
        for out, result in zip(outs, results if isinstance(results, tuple) else (results,), strict=True):
            if out.shape != result.shape:
                out.resize_(result.shape)
            out.copy_(result)
        return outs[0] if len(outs) == 1 else tuple(outs)

    return run


def run(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one op on the device of its tensors."""
    tensors: list[tuple[str, torch.Tensor]] = []
    for name, value in _bound(op, args, kwargs):
        _collect(name, value, tensors)
    for _, tensor in tensors:
        if dispatches_itself(tensor):
            return NotImplemented
    device = device_check.resolve(op, tensors, args)
    if device.retired and (device.fault is None or not op.is_view):  # a view does not use the device
        raise device_asserts.retired_error(device)

    reshaped = _written(op, args, kwargs) if op.reshaping else []
    if reshaped:
        before = [tensor._inner for tensor in reshaped]
        for tensor in reshaped:  # a detached one shares the inner tensor: from here on, it has its own
            if tensor._inner.layout is torch.strided:
                tensor._inner = torch.ops.aten.alias.default(tensor._inner)
        try:
            return _compute(op, args, kwargs, tensors, device, reshaped)
        except BaseException:
            for tensor, inner in zip(reshaped, before, strict=True):
                tensor._inner = inner  # undo: a failed op has no effect
            raise
    return _compute(op, args, kwargs, tensors, device, reshaped)


def _compute(
    op: Op,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[tuple[str, torch.Tensor]],
    device: Device,
    reshaped: list[FakeCudaTensor],
) -> Any:
    """Compute the op on the inner tensors; `reshaped` are those of `tensors` whose shape may change."""
    inner_args = [_unwrap(a) for a in args]
    inner_kwargs = {k: _unwrap(v) for k, v in kwargs.items()}
    target: Device | None = device
    if op.has_device:
        target = _target(op, inner_args, inner_kwargs, device)
    elif device_check.result_on_host(op, tensors):
        target = None
    call = op.call
    if op.random:
        call = partial(sampling.run, op, device)

    nbytes = sum([t.nbytes for _, t in tensors if t.__class__ is FakeCudaTensor])
    read = nbytes - sum([t.nbytes for t in reshaped]) if op.outs else nbytes  # a kernel does not read its out=
    buffers: list[Buffer] | None = None
    if target is not None and not op.random and (nbytes > SMALL or op.has_ints):
        buffers = _reserve(op, args, reshaped, target, inner_args, inner_kwargs, nbytes)
    results = call(*inner_args, **inner_kwargs)
    if op.launches:
        launched(op, device if target is None else target, inner_args, results, read)
    if op.row.cublas:
        ensure_workspace(device)
    for tensor in reshaped:
        sync_metadata(tensor)
    if op.writes_lists:
        bump_versions(_written(op, args, kwargs))
    return _wrap_results(op, results, target, args, kwargs, buffers)


def _reserve(
    op: Op,
    args: tuple[Any, ...],
    reshaped: list[FakeCudaTensor],
    target: Device,
    inner_args: list[Any],
    inner_kwargs: dict[str, Any],
    nbytes: int,
) -> list[Buffer] | None:
    """Take memory from `target` before the op is computed; returns the storages of new results, if it took any."""
    if op.name in ("resize_", "resize_as_"):
        reserve_resized(args[0], args[1])
    elif op.outs:
        reserve_outs(op, reshaped, inner_args, inner_kwargs, nbytes)
    elif None in op.returns:
        return reserve(op, target, inner_args, inner_kwargs, nbytes)
    return None


def _wrap_results(
    op: Op,
    results: Any,
    target: Device | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    buffers: list[Buffer] | None,
) -> Any:
    if not op.returns:
        return None if results is None or op.func._schema.returns == [] else results
    many = len(op.returns) > 1
    values = list(results) if many else [results]
    wrapped = []
    for source, write, value in zip(op.returns, op.returns_write, values, strict=True):
        if source is None:
            wrapped.append(wrap_new(value, target, buffers))
            continue
        argument = _argument(op, source, args, kwargs)
        if write:
            wrapped.append(argument)
        elif isinstance(value, torch.Tensor):
            wrapped.append(wrap_view_of(argument, value))
        else:
            wrapped.append([wrap_view_of(argument, v) for v in value])
    return tuple(wrapped) if many else wrapped[0]


def wrap_new(value: Any, target: Device | None, buffers: list[Buffer] | None) -> Any:
    """New results on `target` (unchanged if None), in the storages that were taken for them, if any."""
    if isinstance(value, torch.Tensor):
        if target is None:
            return value
        return wrap(value, target, buffers.pop(0)) if buffers else new(value, target)
    if isinstance(value, (list, tuple)):
        wrapped = [wrap_new(v, target, buffers) for v in value]
        return wrapped if type(value) is list else tuple(wrapped)
    return value


def _target(op: Op, inner_args: list[Any], inner_kwargs: dict[str, Any], device: Device) -> Device | None:
    """The device on which a factory such as ``zeros_like`` puts its result; None for a CPU tensor.

    Replaces the device argument by the device of the inner tensors.
    """
    where = inner_kwargs.pop("device", None)
    if inner_kwargs.pop("pin_memory", None):
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if where is None:
        return device
    where = torch.device(where)
    if current.is_ours(where):
        target = current.device(where.index)
        if current.meta() and not op.random:  # a random one has an operand on meta
            inner_kwargs["device"] = "meta"
        return target
    inner_kwargs["device"] = where
    return None


def _bound(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]]:
    return [*zip(op.arguments, args, strict=False), *kwargs.items()]


def _argument(op: Op, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if name in kwargs:
        return kwargs[name]
    position = op.position[name]
    return args[position] if position < len(args) else None


def _collect(name: str, value: Any, into: list[tuple[str, torch.Tensor]]) -> None:
    if isinstance(value, torch.Tensor):
        into.append((name, value))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(name, item, into)


def _unwrap(value: Any) -> Any:
    if value.__class__ is FakeCudaTensor:
        return value._inner
    if isinstance(value, (list, tuple)):
        return [_unwrap(v) for v in value]
    return value


def _written(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeCudaTensor]:
    """The device tensors that the op writes to."""
    tensors: list[tuple[str, torch.Tensor]] = []
    for name in op.written:
        _collect(name, _argument(op, name, args, kwargs), tensors)
    return [tensor for _, tensor in tensors if tensor.__class__ is FakeCudaTensor]
