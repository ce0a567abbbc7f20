"""Checks of a call's tensors and options, with the errors of NCCL's and Gloo's process groups.

torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (getNcclDataType, getNcclReduceOp, check_gpu_single_tensor, the head of
each operation) and Utils.hpp (checkSplitSizes, assertTypeAndSizesMatch).
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ReduceOp

from fakegpu_lab.driver.asserts import device_asserts, kernel_asserts
from fakegpu_lab.driver.asserts.failing_threads import Failure
from fakegpu_lab.driver.base import not_simulated
from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.driver.placement.dtypes import scalar_type
from fakegpu_lab.ranks.collectives.mismatches import refused_message
from fakegpu_lab.ranks.collectives.operation import KINDS
from fakegpu_lab.ranks.diagnosis import nccl_watchdog
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.user_code.frames import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.ranks.collectives.operation import Operation
    from fakegpu_lab.ranks.process_groups.backends import RankBackend

    Tensor = torch.Tensor

_MULTI_DEVICE = (
    "Expecting one tensor only but got multiple. You are probably using multiple devices under one thread. The support "
    "for such usage has been deprecated. For details, please refer to "
    "https://pytorch.org/docs/stable/distributed.html#multi-gpu-collective-functions. ProcessGroupNCCL continues "
    "supporting multi-process and multi-thread modes."
)
_NO_TENSORS = (
    "There were no tensor arguments to this function (e.g., you passed an empty list of Tensors), but no fallback "
    "function is registered for this schema.  This usually means that this function requires a non-empty list of "
    "Tensors, or that you (the operator writer) forgot to register a fallback function."
)
"""The dispatcher's error (torch/csrc/.../OperatorEntry.cpp), without the list of kernels."""
_FLOAT8 = ("Float8_e5m2", "Float8_e4m3fn", "Float8_e4m3fnuz", "Float8_e5m2fnuz")
_TYPES = frozenset(
    ("Char", "Byte", "Float", "Double", "Int", "Long", "Half", "Bool", "BFloat16", "ComplexFloat", "ComplexDouble")
) | frozenset(_FLOAT8)
_REDUCING = frozenset(name for name, kind in KINDS.items() if kind.model in ("all_reduce", "reduce", "reduce_scatter"))
_ALLOWS_STRIDES = frozenset(("SEND", "RECV", "ALLTOALL"))
_STRIDES = (
    "Detected non-contiguous tensor in P2P operations. It is user responsibility to guarantee that source and "
    "destination tensors have the same contiguity format."
)
_UNCHECKED = frozenset(("GATHER", "SCATTER"))


def check(operation: Operation, backend: RankBackend) -> None:
    """Raise what the backend raises for wrong tensors or options, or after its end.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        With the messages of ProcessGroupNCCL or ProcessGroupGloo.
    """
    nccl = operation.channel.backend == "nccl"
    failure = operation.channel.failure
    if nccl and (backend.ended or failure):
        raise dist.DistBackendError(nccl_watchdog.aborted_message(operation.rank, failure))
    tensors = [*operation.inputs, *operation.outputs]
    for tensor in tensors if nccl else ():
        if operation.kind == "ALLREDUCE" and tensor.is_sparse:
            raise RuntimeError(
                "NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead."
            )
        if operation.kind not in _UNCHECKED:
            _check_tensor(tensor, operation)
    if operation.kind == "ALLTOALL_BASE" and not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("Tensors must be contiguous")  # also Gloo's
    _check_sizes(operation)
    _check_peer(operation)
    for tensor in tensors:
        if nccl and scalar_type(tensor.dtype) not in _TYPES:
            raise TypeError(
                f"Input tensor data type is not supported for NCCL process group: {scalar_type(tensor.dtype)}"
            )
    if nccl and backend.checks_nan:
        _check_nan(operation)
    if operation.kind in _REDUCING and nccl:
        for tensor in operation.inputs:
            _check_reduction(tensor, operation.reduce_op)
    elif operation.kind in _REDUCING:
        _check_gloo(operation)


def _check_peer(operation: Operation) -> None:
    """Refuse a message to or from a rank that the group does not have (nccl/src/misc/argcheck.cc, ArgsCheck).

    Simplified: outside of a batch, ranks with NCCL or Gloo would wait for that rank until their timeout.
    """
    size = len(operation.channel.ranks)
    if operation.kind not in ("SEND", "RECV") or 0 <= operation.peer < size:
        return
    function = KINDS[operation.kind].function
    preposition = "to" if operation.kind == "SEND" else "from"
    me, line = operation.global_rank, quoted(operation.line)
    refused = refused_message(
        "invalid argument",
        "ncclInvalidArgument: Invalid value for an argument.",
        f"{operation.kind.capitalize()} : invalid root {operation.peer} (root should be in the 0..{size} range)",
    )
    raise dist.DistBackendError(
        f"{refused}\n\n"
        f"Rank {me} calls {function} {preposition} rank {operation.peer} ({line}), and the "
        f"group has the ranks 0 to {size - 1}."
    )


def _check_nan(operation: Operation) -> None:
    """Fail a device-side assert if a rank sends NaN (torch/csrc/distributed/c10d/NanCheck.cu).

    Simplified: one thread fails, that of a tensor's last elements; it takes no time, and the host knows at once.
    """
    if operation.kind == "BROADCAST" and operation.rank != operation.root:
        return
    for tensor in operation.inputs:
        if isinstance(tensor, FakeCudaTensor) and tensor.is_floating_point() and not tensor._inner.is_meta:
            values = tensor._inner
            if bool((values.float() if values.itemsize == 1 else values).isnan().any()):
                device_asserts.fail(tensor._device, Failure([(kernel_asserts.NAN_SENT, 0, 0)], 1))
                device_asserts.check(tensor._device)


def _check_tensor(tensor: Tensor, operation: Operation) -> None:
    if not tensor.is_cuda or tensor.is_sparse:
        raise ValueError("Tensors must be CUDA and dense")
    if not (
        tensor.is_contiguous()
        or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
        or (tensor.dim() == 5 and tensor.is_contiguous(memory_format=torch.channels_last_3d))
    ):
        if operation.kind not in _ALLOWS_STRIDES:
            raise ValueError("Tensors must be contiguous")
        warned = operation.channel.warned
        if operation.rank not in warned:
            warned.add(operation.rank)
            warnings.warn(_STRIDES, UserWarning, stacklevel=2)


def _check_reduction(tensor: Tensor, op: Any) -> None:
    kind = scalar_type(tensor.dtype)
    if kind in ("Float8_e4m3fnuz", "Float8_e5m2fnuz"):
        raise RuntimeError("Unsupported Float8 type for NCCL reduction")
    if kind == "Bool" and op == ReduceOp.AVG:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    if op == ReduceOp.PREMUL_SUM and kind not in ("Half", "Float", "Double", "BFloat16"):
        raise TypeError("PreMulSum Data type must be half, float, bfloat16 or double")
    for name in ("BAND", "BOR", "BXOR"):
        if op == getattr(ReduceOp, name):
            raise ValueError(f"Cannot use ReduceOp.{name} with NCCL")


def _check_gloo(operation: Operation) -> None:
    """gloo/algorithms and ProcessGroupGloo.cpp (toFunction, GENERATE_ALL_TYPES)."""
    op = operation.reduce_op
    if any(tensor.is_sparse for tensor in operation.inputs):
        raise not_simulated.error("sparse collectives")
    if op in (ReduceOp.AVG, ReduceOp.PREMUL_SUM):
        name = "AVG" if op == ReduceOp.AVG else "PREMUL_SUM"
        raise RuntimeError(f"Cannot use ReduceOp.{name} with Gloo")
    for tensor in operation.inputs:
        if op in (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR) and tensor.dtype.is_floating_point:
            raise RuntimeError("Cannot use ReduceOp.BAND with non-integral dtype".replace("BAND", op.op.name))


def single(tensors: Sequence[Tensor]) -> Tensor:
    """The one tensor of a list; NCCL's groups have one device per process."""
    if not len(tensors):
        raise RuntimeError(_NO_TENSORS)
    if len(tensors) != 1:
        raise RuntimeError(_MULTI_DEVICE)
    return tensors[0]


def as_list(tensors: Any) -> Any:
    """A list of tensors, as which one tensor counts."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def inner_list(tensors: Any) -> Any:
    """The one list in a list of lists, as C++'s signatures have it; a plain list is returned as it is."""
    if len(tensors) and not isinstance(tensors[0], torch.Tensor):
        return single(tensors)
    return tensors


def _check_sizes(operation: Operation) -> None:
    kind, size = operation.kind, operation.channel.size
    if kind in ("_ALLGATHER_BASE", "ALLGATHER_COALESCED"):
        for output, given in zip(operation.outputs, operation.inputs, strict=True):
            if given.dtype != output.dtype:
                raise TypeError("output tensor must have the same type as input tensor")
            if given.numel() * size != output.numel():
                raise ValueError("output tensor size must be equal to world_size times input tensor size")
    elif kind in ("_REDUCE_SCATTER_BASE", "REDUCE_SCATTER_COALESCED"):
        for output, given in zip(operation.outputs, operation.inputs, strict=True):
            if given.dtype != output.dtype:
                raise TypeError("input tensor must be the same type as the output tensor.")
            if given.numel() != output.numel() * size:
                raise ValueError("input tensor must be the same size as output size times world size")
    elif kind in ("GATHER", "SCATTER"):
        _check_rooted(operation)
    elif kind == "ALLTOALL_BASE":
        for splits, tensor in zip(operation.splits, (operation.outputs[0], operation.inputs[0]), strict=True):
            _check_splits(splits, tensor, size)
    elif kind in ("ALLGATHER", "REDUCE_SCATTER", "ALLTOALL"):
        _check_lists(operation)


def _check_lists(operation: Operation) -> None:
    name = operation.kind.lower()
    size = operation.channel.size
    many = operation.inputs if operation.kind == "REDUCE_SCATTER" else operation.outputs
    if len(many) != size:
        what = "input" if many is operation.inputs else "output"
        raise ValueError(f"ProcessGroupNCCL::{name}: {what} tensor list must have one tensor a rank: {size}")
    device = operation.main_tensors[0].device
    if any(tensor.device != device for tensor in (*operation.inputs, *operation.outputs)):
        raise RuntimeError("Tensors must be on the same device")


def _check_rooted(operation: Operation) -> None:
    name = f"ProcessGroup{'NCCL' if operation.channel.backend == 'nccl' else 'Gloo'}::{operation.kind.lower()}"
    size = operation.channel.size
    if not 0 <= operation.root < size:
        raise ValueError(f"{name}: invalid root rank: {operation.root}")
    if operation.kind == "GATHER":
        many, one, what = operation.outputs, operation.inputs[0], "output"
    else:
        many, one, what = operation.inputs, operation.outputs[0], "input"
    if operation.rank != operation.root:
        if many:
            raise ValueError(f"{name}: requires empty {what} on non-root")
        return
    if len(many) != size:
        raise ValueError(
            f"{name}: Incorrect {what} list size {len(many)}. {what.capitalize()} list size should be {size}, same as "
            "size of the process group."
        )
    for place, tensor in enumerate(many):
        if tensor.dtype != one.dtype:
            raise ValueError(
                f"{name}: invalid tensor type at index {place} (expected {_type(one)}, got {_type(tensor)})"
            )
        if tensor.shape != one.shape:
            raise ValueError(
                f"{name}: invalid tensor size at index {place} (expected {_sizes(one)}, got {_sizes(tensor)})"
            )


def _type(tensor: Tensor) -> str:
    """A tensor's type, as C++ prints DeprecatedTypeProperties."""
    return f"{'CUDA' if tensor.is_cuda else 'CPU'}{scalar_type(tensor.dtype)}Type"


def _sizes(tensor: Tensor) -> str:
    """A tensor's sizes, as C++ prints an IntArrayRef within parentheses."""
    inside = ", ".join(str(extent) for extent in tensor.shape)
    return f"({inside})"


def _check_splits(splits: Sequence[int], tensor: Tensor, size: int) -> None:
    if not splits:
        if tensor.shape[0] % size:
            raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
        return
    if len(splits) != size:
        raise RuntimeError("Number of tensor splits not equal to group size")
    if sum(splits) != tensor.shape[0]:
        raise RuntimeError("Split sizes doesn't match total dim 0 size")
