"""foreach ops: one fused kernel over all tensors of their lists, where CUDA has one; else the plain op on each tensor.

See `can_use_fast_route` in aten/src/ATen/native/ForeachUtils.h and aten/src/ATen/native/cuda/Foreach*.cu. The slow
path is torch's own (aten/src/ATen/native/ForeachOpsKernels.cpp), so that the plain op's rules and errors apply.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base.tensor import dispatches_itself, inner_of, tensors_of

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan

_BY_TENSOR = torch._C.DispatchKey.CompositeExplicitAutograd

FLOATING = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
"""The dtypes that every fused kernel takes and returns, if no scalar is complex."""

_ANY_DTYPE = {"add", "sub", "mul", "neg", "abs", "zero", "copy", "max", "clone"}
"""Ops whose fused kernels also take integers. The others would have to return floating-point numbers."""
_ANY_NUMBER = {"norm", "copy"}
"""Ops whose numbers are not operands."""
_NUMBERS = (bool, int, float, complex)


def plan(op: Op, fused: Plan) -> Plan:
    """The plan of a foreach op whose fused kernel is `fused`."""
    name = op.name.removeprefix("_foreach_").rstrip("_")

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if op.schema.overload_name == "Tensor":
            other, args, kwargs = _with_numbers(op, name, args, kwargs)
            if other is not None:
                return other(*args, **kwargs)
        if any(dispatches_itself(tensor) for tensor in tensors_of(args)):
            return NotImplemented
        if _is_fused(op, name, args, kwargs):
            return fused(args, kwargs)
        return op.func._op_dk(_BY_TENSOR, *args, **kwargs)

    return run


def _with_numbers(op: Op, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The overload that takes numbers from the host, and its arguments; None if the scalar tensor is on a device.

    `FOREACH_BINARY_OP_SCALAR_TENSOR` in cuda/ForeachBinaryOpScalarTensor.cu, `convert_tensor_to_scalar_list` in
    ForeachUtils.h.
    """
    packet, scalars = op.func.overloadpacket, args[-1]
    if name.startswith("addc"):
        _check_scalars(scalars, len(args[0]))
        return packet.ScalarList, (*args[:-1], scalars.tolist()), kwargs
    if not scalars.is_cuda and name != "add":
        return packet.Scalar, (args[0], scalars.item()), kwargs
    return None, args, kwargs


def _check_scalars(scalars: torch.Tensor, count: int) -> None:
    if scalars.is_cuda:
        raise RuntimeError(f"Expected scalars to be on CPU, got {scalars.device} instead.")
    if not scalars.is_contiguous():
        raise RuntimeError("Expected scalars to be contiguous.")
    if scalars.dim() != 1:
        raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {scalars.dim()} instead.")
    if len(scalars) != count:
        raise RuntimeError(
            f"Expected length of scalars to match input of length {count} but got {len(scalars)} instead."
        )


def _is_fused(op: Op, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether CUDA runs one fused kernel (`can_use_fast_route`)."""
    values = [*args, *kwargs.values()]
    lists: list[Any] = [v for v in values if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor)]
    if not lists or len({len(tensors) for tensors in lists}) > 1:
        return True  # an error, which the kernel reports
    first = lists[0][0]
    for tensors in lists:
        dtype = lists[-1][0].dtype if name == "copy" else first.dtype
        exempt = name == "copy" and tensors is lists[0]
        for tensor in tensors:
            if tensor.device != first.device or not (exempt or tensor.dtype is dtype) or not _dense(tensor):
                return False
    if any(not _same_strides(a, b) for other in lists[1:] for a, b in zip(lists[0], other, strict=True)):
        return False
    return _takes_dtype(op, name, first, args) and _keeps_dtype(op, name, first, values)


def _dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills its part of the storage; `empty_like` keeps the strides of such a tensor only."""
    inner = inner_of(tensor)
    if inner.layout is not torch.strided:
        return False
    return bool(inner.is_contiguous() or torch.empty_like(inner, device="meta").stride() == inner.stride())


def _same_strides(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have the same shape and strides; the stride of an extent of 1 does not count."""
    return a.shape == b.shape and all(n == 1 or a.stride(i) == b.stride(i) for i, n in enumerate(a.shape))


def _takes_dtype(op: Op, name: str, first: torch.Tensor, args: tuple[Any, ...]) -> bool:
    """Whether the fused kernel takes tensors of this dtype."""
    if name == "norm":
        return first.is_floating_point() and (args[1] if len(args) > 1 else 2) in (1, 2, math.inf)
    if name == "abs":
        return not first.is_complex()
    integers = name in _ANY_DTYPE or op.schema.overload_name == "ScalarAndTensor"
    return integers or first.is_floating_point() or first.is_complex()


def _keeps_dtype(op: Op, name: str, first: torch.Tensor, values: list[Any]) -> bool:
    """Whether the op's numbers leave the dtype as it is; the fused kernel cannot return another one."""
    overload = op.schema.overload_name
    if overload == "Tensor" and values[1].dtype is not first.dtype:
        return False
    if name in _ANY_NUMBER or overload == "ScalarAndTensor" or (name == "lerp" and overload == "Scalar"):
        return True
    numbers = [n for v in values for n in (v if isinstance(v, (list, tuple)) else [v]) if isinstance(n, _NUMBERS)]
    return all(torch.result_type(first, n) == first.dtype for n in numbers)
