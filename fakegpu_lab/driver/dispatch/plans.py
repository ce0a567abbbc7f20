"""Plans: closures over plain values that run one overload, made once from its schema and its row.

The most frequent kinds of ops have plans of their own, for positional tensors on one device. A call that does not fit
falls back to `general_path.run`, which handles every schema and raises CUDA's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.metadata import bump_versions
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, share, wrap, wrap_view_of
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.workspace import ensure_workspace, product
from fakegpu_lab.driver.dispatch import general_path
from fakegpu_lab.driver.ops import foreach as foreach_op
from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.driver.placement.memory_preflight import HARMLESS, SMALL, reserve
from fakegpu_lab.driver.random import sampling
from fakegpu_lab.hardware.time.clock import here, launch
from fakegpu_lab.hardware.time.roofline import FLOOR_NS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op, Plan

_make_wrapper = torch.Tensor._make_wrapper_subclass
_inference = torch.is_inference_mode_enabled
_float32 = torch.float32
_fp32_precision: Callable[[str, str], str] = torch._C._get_fp32_precision_getter

_NUMBERS = frozenset((float, int, bool, complex))


def plan(op: Op) -> Plan:
    """The plan of an op, without its checks."""
    return general_path.special(op) or _by_name(op) or _by_schema(op) or general_path.plan(op)


def _by_name(op: Op) -> Plan | None:
    """The plan of foreach ops, of factories such as `zeros_like`, and of views that return a list."""
    if op.name.startswith("_foreach_") and not op.outs and op.written in ((), ("self",)):
        return _foreach(op)
    if op.name in ("ones_like", "zeros_like", "empty_like"):
        return _like(op)
    if op.name in ("unbind", "split", "split_with_sizes") and op.is_view:
        return _list_of_views(op)
    return None


def _by_schema(op: Op) -> Plan | None:
    """The plan of an op whose schema is simple: one view, new tensors, or its first argument written in place."""
    if op.random:
        fills = op.written == ("self",) and op.tensors == (0,) and not op.tensor_kwargs
        return _random_fill(op) if fills else None
    simple = op.only_tensors and not op.has_lists and not op.has_device and not op.reshaping
    if not simple or op.tensors[:1] != (0,):
        return None
    first = (op.arguments[0],)
    if op.is_view and op.single and op.returns == first and op.tensors == (0,):
        return _view(op)
    if op.written == first and op.returns == first:
        return _one_device(op, in_place=True)
    if op.written or op.is_view:
        return None
    plan = _one_device(op)
    if not op.single or op.has_ints or "sparse" in op.name or op.tensors not in ((0,), (0, 1)):
        return plan
    quick = _quick(op, plan)
    return _product(op, quick) if dtypes.by_shape(op) else quick


def _one_device(op: Op, *, in_place: bool = False) -> Plan:
    """New tensors from positional tensors, or the first of them written in place."""
    call, positions, blas, single, tensor_kwargs = op.call, op.tensors, op.row.cublas, op.single, op.tensor_kwargs
    fallback = general_path.plan(op)
    # Operands of at most this many bytes cannot make a large result.
    alone = op.pointwise and len(positions) == 1
    small = HARMLESS // 2 if not op.row.grows else HARMLESS // 8 if alone else SMALL
    harmless = -1 if op.has_ints else small

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inner = list(args)
        count = len(inner)
        device = None
        nbytes = 0
        for position in positions:
            if position < count:
                argument = inner[position]
                if argument.__class__ is FakeCudaTensor:
                    if argument._device is not device:
                        if device is not None:
                            return fallback(args, kwargs)
                        device = argument._device
                    inner[position] = argument._inner
                    nbytes += argument.nbytes
                elif isinstance(argument, torch.Tensor):
                    return fallback(args, kwargs)
        if device is None or device.retired or (tensor_kwargs and kwargs):
            return fallback(args, kwargs)
        if in_place:
            if kwargs:
                call(*inner, **kwargs)
            else:
                call(*inner)
            launched(op, device, inner, inner[0], nbytes)
            results = args[0]
        else:
            buffers = reserve(op, device, inner, kwargs, nbytes) if nbytes > harmless else None
            result = call(*inner, **kwargs) if kwargs else call(*inner)
            launched(op, device, inner, result, nbytes)
            if not single:
                results = general_path.wrap_new(result, device, buffers)
            else:
                results = new(result, device) if buffers is None else wrap(result, device, buffers[0])
        if blas:
            ensure_workspace(device)
        return results

    return run


def _quick(op: Op, fallback: Plan) -> Plan:
    """One new tensor from one or two small operands on one device.

    The overhead of a small loop (`benchmarks/overhead.py`), so it is written out, without a list of tensors.
    """
    call, blas, two = op.call, op.row.cublas, len(op.tensors) == 2
    only_streams = op.estimate is None and not op.row.synchronises
    harmless = HARMLESS // 8 if op.pointwise and not two else SMALL

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        a = args[0]
        if kwargs or a.__class__ is not FakeCudaTensor or a._unusual:
            return fallback(args, kwargs)
        x = a._inner
        nbytes = x.nbytes
        device = a._device
        if nbytes > harmless or device.retired:
            return fallback(args, kwargs)
        if two:
            if len(args) < 2:
                return fallback(args, kwargs)
            b = args[1]
            if b.__class__ is FakeCudaTensor:
                if b._device is not device or b._unusual:
                    return fallback(args, kwargs)
                y: Any = b._inner
                if (more := y.nbytes) > SMALL:
                    return fallback(args, kwargs)
                nbytes += more
            elif b.__class__ in _NUMBERS:
                y = b
            else:
                return fallback(args, kwargs)
            inner = (x, y) if len(args) == 2 else (x, y, *args[2:])
        else:
            inner = (x,) if len(args) == 1 else (x, *args[1:])
        result = call(*inner)
        tensor = new(result, device)
        if only_streams and (two or nbytes <= SMALL):
            host = here.host
            stream = host.streams[device]
            if stream.watch is None:
                launch(host, stream, FLOOR_NS)
            else:
                elements = result.numel()
                launch(host, stream, FLOOR_NS, device.roofline.share(elements), elements, nbytes + result.nbytes)
        else:
            launched(op, device, inner, result, nbytes)
        if blas:
            ensure_workspace(device)
        return tensor

    return run


def _product(op: Op, fallback: Plan) -> Plan:
    """A product of two small matrices, or of two batches: its kernel is worked out once for each pair of shapes."""
    call, name, estimate = getattr(op.call, "__wrapped__", op.call), op.name, op.estimate
    assert estimate is not None

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        a, b = args[0], args[1]
        if kwargs or a.__class__ is not FakeCudaTensor or b.__class__ is not FakeCudaTensor or a._unusual or b._unusual:
            return fallback(args, kwargs)
        device = a._device
        x, y = a._inner, b._inner
        dtype = x.dtype
        precision = _fp32_precision("cuda", "matmul") if dtype is _float32 else ""
        key = (name, x.shape, y.shape, x.stride(), dtype, precision)
        kernel = device.roofline.known.get(key)
        if kernel is not None and b._device is device and not device.retired:
            return product(call(x, y), device, kernel)
        result = fallback(args, kwargs)  # with the errors about devices, shapes and integers
        if x.nbytes <= SMALL and y.nbytes <= SMALL:
            ns, flops, moved, share = estimate(device, (x, y), result._inner, x.nbytes + y.nbytes)
            device.roofline.remember(key, (ns, share, flops, moved))
        return result

    return run


def _view(op: Op) -> Plan:
    """A view of the first argument."""
    call = op.call
    same = op.name in ("detach", "alias")
    fallback = general_path.plan(op)
    if op.name in ("_conj", "_neg_view"):
        return fallback

    def view(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0]
        if base.__class__ is not FakeCudaTensor or (device := base._device).retired or base._unusual or _inference():
            return fallback(args, kwargs)
        inner: Any = base._inner
        if not same:  # else both share the inner tensor, until `general_path.run` gives one its own to resize it
            inner = call(inner, *args[1:], **kwargs) if kwargs else call(inner, *args[1:])
        shape = inner.shape
        if inner.is_contiguous() and not inner.storage_offset() and 1 not in shape and 0 not in shape:
            tensor = _make_wrapper(FakeCudaTensor, shape, dtype=inner.dtype, device=CPP_DEVICES[device.index])
        else:
            tensor = _make_wrapper(
                FakeCudaTensor, inner.shape, inner.stride(), inner.storage_offset(),
                dtype=inner.dtype, device=CPP_DEVICES[device.index],
            )  # fmt: skip
        share(tensor, base)
        tensor._inner = inner
        tensor._buffer = base._buffer
        tensor._device = device
        return tensor

    return view


def _list_of_views(op: Op) -> Plan:
    """A list of views of the first argument."""
    call = op.call
    fallback = general_path.plan(op)

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        base = args[0]
        if base.__class__ is not FakeCudaTensor or base._device.retired or base._unusual:
            return fallback(args, kwargs)
        return [wrap_view_of(base, part) for part in call(base._inner, *args[1:], **kwargs)]

    return run


def _random_fill(op: Op) -> Plan:
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


def _foreach(op: Op) -> Plan:
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


def _like(op: Op) -> Plan:
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
