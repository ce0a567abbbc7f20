"""Flat plans for less frequent kinds of ops: products, lists of views, foreach ops, random fills, `zeros_like`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.metadata import bump_versions
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, wrap_view_of
from fakegpu_lab.driver.cost import workspace
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.dispatch import general_path
from fakegpu_lab.driver.ops import foreach as foreach_op
from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.driver.placement.memory_preflight import HARMLESS, SMALL
from fakegpu_lab.driver.random import sampling

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op, Plan

_float32 = torch.float32
_fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter


def product(op: Op, fallback: Plan) -> Plan:
    """A product of two small matrices, or of two batches: its kernel is worked out once for each pair of shapes."""
    call, name, estimate, takes_integers = op.call, op.name, op.estimate, not op.row.no_integers
    assert estimate is not None

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        a, b = args[0], args[1]
        if kwargs or a.__class__ is not FakeCudaTensor or b.__class__ is not FakeCudaTensor or a._unusual or b._unusual:
            result = fallback(args, kwargs)
            if not takes_integers:
                dtypes.refuse_integers(op, a.dtype)
            return result
        device = a._device
        x, y = a._inner, b._inner
        dtype = x.dtype
        key = (name, x.shape, y.shape, dtype, _fp32_precision("cuda", "matmul") if dtype is _float32 else "")
        kernel = device.roofline.known.get(key)
        if kernel is not None and b._device is device and not device.retired:
            return workspace.product(call(x, y), device, kernel)
        result = fallback(args, kwargs)  # errors about devices and shapes come first
        if not takes_integers:
            dtypes.refuse_integers(op, dtype)
        if x.nbytes <= SMALL and y.nbytes <= SMALL:
            ns, flops, moved, share = estimate(device, (x, y), result._inner, x.nbytes + y.nbytes)
            device.roofline.remember(key, (ns, share, flops, moved))
        return result

    return run


def list_of_views(op: Op) -> Plan:
    """A list of views of the first argument."""
    call = op.call
    fallback = general_path.plan(op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0]
        if base.__class__ is not FakeCudaTensor or base._device.retired or base._unusual:
            return fallback(args, kwargs)
        return [wrap_view_of(base, part) for part in call(base._inner, *args[1:], **kwargs)]

    return run


def random_fill(op: Op) -> Plan:
    """A distribution that fills its first argument, which is the only tensor."""
    fallback = general_path.plan(op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        if target.__class__ is not FakeCudaTensor or (device := target._device).retired or target._unusual:
            return fallback(args, kwargs)
        inner = target._inner
        sampling.run(op, device, inner, *args[1:], **kwargs)
        launched(op, device, (inner,), inner, target.nbytes)
        return target

    return run


def foreach(op: Op) -> Plan:
    """A foreach op in the usual case: one fused kernel over lists of floating-point tensors, without scalar tensors.

    Whether the lists have the same shapes is seen by their bytes only: a list that has as many of another shape counts
    as the same, and an op that broadcasts such lists is one kernel here, several on CUDA.
    """
    call, written = op.call, op.written == ("self",)
    fallback = foreach_op.plan(op, general_path.plan(op))
    takes = frozenset() if op.name == "_foreach_norm" else foreach_op.FLOATING

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        device = dtype = None
        nbytes = 0
        first = -1  # bytes of the first list
        lists = 0
        inner: list[Any] = []
        for argument in args:
            if argument.__class__ is not list:
                if argument.__class__ is complex or isinstance(argument, torch.Tensor):
                    return fallback(args, kwargs)
                inner.append(argument)
                continue
            if argument and argument[0].__class__ is float:  # scalars
                if complex in map(type, argument):
                    return fallback(args, kwargs)
                inner.append(argument)
                continue
            tensors = []
            for item in argument:
                if item.__class__ is not FakeCudaTensor:
                    return fallback(args, kwargs)
                tensor = item._inner
                if item._device is not device or tensor.dtype is not dtype:
                    if device is not None:
                        return fallback(args, kwargs)
                    device, dtype = item._device, tensor.dtype
                if not tensor.is_contiguous():
                    return fallback(args, kwargs)
                nbytes += tensor.nbytes
                tensors.append(tensor)
            inner.append(tensors)
            lists += 1
            if first < 0:
                first = nbytes
        if device is None or dtype not in takes or device.retired or nbytes != first * lists:
            return fallback(args, kwargs)
        if kwargs and (len(kwargs) > 1 or kwargs.get("alpha").__class__ not in (float, int)):
            return fallback(args, kwargs)
        results = call(*inner, **kwargs)
        if written:
            launched(op, device, inner, inner[0], nbytes, first)
            bump_versions(args[0])
        else:
            launched(op, device, inner, results, nbytes)
        return general_path.wrap_new(results, device, None) if op.returns else None

    return run


def like(op: Op) -> Plan:
    """A new tensor of the same shape and dtype: the gradient at which backward starts, an optimizer's state."""
    call = op.call
    fallback = general_path.plan(op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0]
        if (
            base.__class__ is not FakeCudaTensor
            or (device := base._device).retired
            or base._unusual
            or base.nbytes > HARMLESS
        ):
            return fallback(args, kwargs)
        options = {}
        for name, value in kwargs.items():
            if name == "memory_format":
                options[name] = value
            elif value:
                return fallback(args, kwargs)
        result = call(base._inner, **options)
        if op.launches:
            launched(op, device, (), result, 0)
        return new(result, device)

    return run
