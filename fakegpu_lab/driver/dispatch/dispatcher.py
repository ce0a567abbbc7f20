"""The path of one op: from torch's dispatcher to the inner tensors and back.

`run` is called for every kernel that touches a FakeCudaTensor. What an overload needs is worked out once, from its
schema, and kept as a *plan*: a closure over plain values. The most frequent kinds have flat plans (a new tensor, a
view, an in-place op, each with positional tensor arguments on one device). A call that does not fit its flat plan falls
back to `general_path.run`, which handles every schema and raises CUDA's errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.asserts import device_asserts
from fakegpu_lab.driver.base import cuda_messages
from fakegpu_lab.driver.base.device_memory import new
from fakegpu_lab.driver.base.privateuse1 import CPP_DEVICES
from fakegpu_lab.driver.base.tensor import FakeCudaTensor, NestedCudaTensor, SparseCudaTensor, share, wrap
from fakegpu_lab.driver.copies import hidden_waits
from fakegpu_lab.driver.cost.kernel_call import KernelCall
from fakegpu_lab.driver.cost.launching import launched
from fakegpu_lab.driver.cost.op import Op
from fakegpu_lab.driver.cost.workspace import ensure_workspace
from fakegpu_lab.driver.dispatch import flat_plans, general_path, result_fixes, sparse
from fakegpu_lab.driver.meta import no_values
from fakegpu_lab.driver.ops import convolution
from fakegpu_lab.driver.ops.nested import computing
from fakegpu_lab.driver.placement import determinism, dtypes
from fakegpu_lab.driver.placement.memory_preflight import HARMLESS, SMALL, reserve
from fakegpu_lab.hardware.allocator.caching_allocator import DeviceOutOfMemory
from fakegpu_lab.hardware.buffer import Buffer
from fakegpu_lab.hardware.time.clock import here, launch
from fakegpu_lab.hardware.time.roofline import FLOOR_NS
from fakegpu_lab.user_code import interrupts
from fakegpu_lab.user_code.environment import DEBUG

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Plan
    from fakegpu_lab.hardware.device import Device
    from fakegpu_lab.hardware.time.clock import Host, Stream

_make_wrapper = torch.Tensor._make_wrapper_subclass
_function_mode_enabled = torch._C._is_torch_function_mode_enabled
_inference = torch.is_inference_mode_enabled
_no_function_modes = torch._C.DisableTorchFunction

_NUMBERS = frozenset((float, int, bool, complex))

_plans: dict[int, Plan] = {}
"""By the id of the overload, because hashing an OpOverload runs Python code; the plan keeps the overload alive."""


@interrupts.whole_but_for_users_code
def run(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """Run the overload `func`: `__torch_dispatch__` of FakeCudaTensor."""
    __tracebackhide__ = True
    plan = _plans.get(id(func))
    if plan is None:
        plan = _plans[id(func)] = _make_plan(func)
    try:
        if _function_mode_enabled():
            # The inner calls are ours, not the user's: `with torch.device(...)` must not redirect them.
            with _no_function_modes():
                return plan(args, kwargs or {})
        return plan(args, kwargs)  # type: ignore[arg-type]
    except Exception as error:
        # The traceback ends at the user's line. (An exception that keeps frames would also keep tensors alive.)
        outcome = device_asserts.failed(func, args, kwargs, error)
        if outcome is None:
            if DEBUG:
                raise
            raise dtypes.as_cuda(no_values.explained(func, error.with_traceback(None))) from None
    return outcome()


FakeCudaTensor.__torch_dispatch__ = staticmethod(run)
for kind in (SparseCudaTensor, NestedCudaTensor):
    kind.on_first.append(_plans.clear)


def _make_plan(func: Any) -> Plan:
    if func.__class__ is KernelCall:
        return func.plan
    if func in sparse.QUERIES:
        return sparse.QUERIES[func]
    op = result_fixes.prepare(Op(func))
    planned = convolution.with_workspace(op, _plan(op))
    checked = dtypes.with_dtype_checks(op, device_asserts.with_assert_checks(op, planned))
    alerting = determinism.with_alerts(op, hidden_waits.with_waits(op, checked))
    return computing.computing(op, sparse.adopting_new_parts(op, sparse.as_cuda_computes(op, alerting)))


def forget() -> None:
    """Drop all plans: they depend on the machine, and on `torch.use_deterministic_algorithms`."""
    _plans.clear()


def _plan(op: Op) -> Plan:
    return general_path.special(op) or _plan_by_name(op) or _plan_by_schema(op) or general_path.plan(op)


def _plan_by_name(op: Op) -> Plan | None:
    """The flat plan of foreach ops, of factories such as `zeros_like`, and of views that return a list."""
    if op.name.startswith("_foreach_") and not op.outs and op.written in ((), ("self",)):
        return flat_plans.foreach(op)
    if op.name in ("ones_like", "zeros_like", "empty_like"):
        return flat_plans.like(op)
    if op.name in ("unbind", "split", "split_with_sizes") and op.is_view:
        return flat_plans.list_of_views(op)
    return None


def _plan_by_schema(op: Op) -> Plan | None:
    """The flat plan of an op whose schema is simple: one view, new tensors, or its first argument written in place."""
    if op.random:
        fills = op.written == ("self",) and op.tensors == (0,) and not op.tensor_kwargs
        return flat_plans.random_fill(op) if fills else None
    simple = op.only_tensors and not op.has_lists and not op.has_device and not op.reshaping
    if not simple or op.tensors[:1] != (0,):
        return None
    first = (op.arguments[0],)
    if op.is_view and op.single and op.returns == first and op.tensors == (0,):
        return _view(op)
    if not op.written and not op.is_view:
        return _functional(op)
    return _in_place(op) if op.written == first and op.returns == first else None


def _functional(op: Op) -> Plan:
    """One or several new tensors from positional tensors."""
    call, positions, blas, single, tensor_kwargs = op.call, op.tensors, op.blas, op.single, op.tensor_kwargs
    fallback, has_ints = general_path.plan(op), op.has_ints
    # Operands of at most this many bytes cannot make a large result.
    alone = op.pointwise and len(positions) == 1
    harmless = -1 if has_ints else HARMLESS // 2 if op.no_growth else HARMLESS // 8 if alone else SMALL

    def functional(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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
        buffers = reserve(op, device, inner, kwargs, nbytes) if nbytes > harmless else None
        result = call(*inner, **kwargs) if kwargs else call(*inner)
        launched(op, device, inner, result, nbytes)
        if not single:
            return general_path.wrap_new(result, device, buffers)
        tensor = new(result, device) if buffers is None else wrap(result, device, buffers[0])
        if blas:
            ensure_workspace(device)
        return tensor

    if single and not has_ints and "sparse" not in op.name:
        if op.tensors == (0,):
            return _unary(op, functional)
        if op.tensors == (0, 1):
            binary = _binary(op, functional)
            return flat_plans.product(op, binary) if dtypes.by_shape(op) else binary
    return functional


# The next two are `_functional` for one or two operands on one device. What they have in common is written out in both,
# without a list or an inner function: they are the overhead of a small loop (`benchmarks/overhead.py`).


def _launch_small(device: Device, host: Host, stream: Stream, result: torch.Tensor, nbytes: int) -> None:
    """Queue the shortest kernel, of a small op that streams, on a stream that is watched."""
    elements = result.numel()
    launch(host, stream, FLOOR_NS, device.roofline.share(elements), elements, nbytes + result.nbytes)


def _unary(op: Op, fallback: Plan) -> Plan:
    call = op.call
    only_streams = op.estimate is None and not op.synchronises
    harmless = HARMLESS // 8 if op.pointwise else SMALL

    def unary(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        a = args[0]
        if kwargs or a.__class__ is not FakeCudaTensor or a._unusual:
            return fallback(args, kwargs)
        x = a._inner
        nbytes = x.nbytes
        device = a._device
        if nbytes > harmless or device.retired:
            return fallback(args, kwargs)
        result = call(x) if len(args) == 1 else call(x, *args[1:])
        host = here.host
        stream = host.streams[device]
        try:
            buffer = Buffer(device, result.nbytes, stream.id)
        except DeviceOutOfMemory as error:
            raise cuda_messages.out_of_memory(error) from None
        if only_streams and nbytes <= SMALL:
            if stream.watch is None:
                launch(host, stream, FLOOR_NS)
            else:
                _launch_small(device, host, stream, result, nbytes)
        else:
            launched(op, device, (x, *args[1:]), result, nbytes)
        shape = result.shape
        if not result.is_contiguous() or 1 in shape or 0 in shape:
            return wrap(result, device, buffer)
        tensor = _make_wrapper(FakeCudaTensor, shape, dtype=result.dtype, device=CPP_DEVICES[device.index])
        tensor._inner = result
        tensor._buffer = buffer
        tensor._device = device
        return tensor

    return unary


def _binary(op: Op, fallback: Plan) -> Plan:
    call, blas = op.call, op.blas
    only_streams = op.estimate is None and not op.synchronises

    def binary(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) < 2:
            return fallback(args, kwargs)
        a, b = args[0], args[1]
        if a.__class__ is not FakeCudaTensor or a._unusual:
            return fallback(args, kwargs)
        x = a._inner
        nbytes = x.nbytes
        device = a._device
        if nbytes > SMALL or device.retired:
            return fallback(args, kwargs)
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
        result = call(x, y) if len(args) == 2 else call(x, y, *args[2:])
        host = here.host
        stream = host.streams[device]
        try:
            buffer = Buffer(device, result.nbytes, stream.id)
        except DeviceOutOfMemory as error:
            raise cuda_messages.out_of_memory(error) from None
        if only_streams:
            if stream.watch is None:
                launch(host, stream, FLOOR_NS)
            else:
                _launch_small(device, host, stream, result, nbytes)
        else:
            launched(op, device, (x, y, *args[2:]), result, nbytes)
        if blas and stream.id not in device.workspaces:
            ensure_workspace(device)
        shape = result.shape
        if not result.is_contiguous() or 1 in shape or 0 in shape:
            return wrap(result, device, buffer)
        tensor = _make_wrapper(FakeCudaTensor, shape, dtype=result.dtype, device=CPP_DEVICES[device.index])
        tensor._inner = result
        tensor._buffer = buffer
        tensor._device = device
        return tensor

    return binary


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


def _in_place(op: Op) -> Plan:
    """The first argument, written in place."""
    call, positions = op.call, op.tensors
    tensor_kwargs = op.tensor_kwargs
    fallback = general_path.plan(op)

    def in_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = args[0]
        if target.__class__ is not FakeCudaTensor:
            return fallback(args, kwargs)
        device = target._device
        inner = list(args)
        count = len(inner)
        nbytes = 0
        for position in positions:
            if position < count:
                argument = inner[position]
                if argument.__class__ is FakeCudaTensor:
                    if argument._device is not device:
                        return fallback(args, kwargs)
                    inner[position] = argument._inner
                    nbytes += argument.nbytes
                elif isinstance(argument, torch.Tensor):
                    return fallback(args, kwargs)
        if device.retired or (tensor_kwargs and kwargs):
            return fallback(args, kwargs)
        if kwargs:
            call(*inner, **kwargs)
        else:
            call(*inner)
        launched(op, device, inner, inner[0], nbytes)
        return target

    return in_place
