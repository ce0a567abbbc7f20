"""The values that each rank has after an operation between ranks.

Values are computed where they are, in host memory; no simulated device memory is allocated. NCCL's arithmetic is
copied: sums go around the ring in the tensors' own dtype, AVG multiplies by 1 / n before it adds (integers: it divides
the sum), the sum of booleans is their "or".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed import ReduceOp

from fakegpu_lab.driver.base.tensor import FakeCudaTensor
from fakegpu_lab.ranks.collectives.operation import by_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.ranks.collectives.operation import Operation

    Parts = list[Operation]
    Tensor = torch.Tensor

_Op: Any = ReduceOp.RedOpType
_PIECE = 1 << 15
"""Elements reduced at a time: they fit into a processor's cache, so that memory is read and written once."""

_FLOAT8 = frozenset(
    dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype) and str(dtype).startswith("torch.float8")
)


def inner(tensor: Tensor) -> Tensor:
    """A tensor on the host that shares a tensor's values, without autograd; complex numbers as pairs of reals."""
    values = tensor._inner if isinstance(tensor, FakeCudaTensor) else tensor.detach()
    return torch.view_as_real(values) if values.is_complex() else values


def snapshot(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A copy of the tensors' values."""
    with torch.no_grad():
        return [inner(tensor).clone() for tensor in tensors]


def sent(tensors: Sequence[Tensor]) -> list[Tensor]:
    """A copy of what is sent."""
    with torch.no_grad():
        return [_memory(inner(tensor)).clone() for tensor in tensors]


def _memory(tensor: Tensor) -> Tensor:
    """What NCCL and Gloo send or receive of a tensor: as many numbers as it has, one after the other in memory.

    A tensor that is not contiguous is sent wrongly (check_gpu_single_tensor warns once). Simplified: what lies behind
    the memory of an expanded tensor is not sent.
    """
    if tensor.is_contiguous() or tensor.is_meta:
        return tensor
    behind = tensor.untyped_storage().nbytes() // tensor.itemsize - tensor.storage_offset()
    return tensor.as_strided((min(tensor.numel(), behind),), (1,))


def perform(parts: Parts) -> None:
    """Move an operation's data, given the calls of all ranks of the group, by rank."""
    with torch.no_grad():
        _PERFORM[parts[0].kind](parts)


def deliver(send: Operation, receive: Operation) -> None:
    """Copy what was sent into the receiver's tensors."""
    with torch.no_grad():
        for target, source in zip(receive.outputs, send.payload, strict=True):
            fill(inner(target), source)


def fill(target: Tensor, source: Tensor) -> None:
    """Copy what arrived into the memory of a receiver's tensor."""
    memory = _memory(target).view(-1)
    count = min(memory.numel(), source.numel())
    put(memory[:count], source.reshape(-1)[:count])


def is_meta(operation: Operation) -> bool:
    """Whether its tensors have shapes only, and no values."""
    return any(inner(tensor).is_meta for tensor in (*operation.inputs, *operation.outputs))


def put(target: Tensor, source: Tensor) -> None:
    """Copy values as NCCL copies bytes: in memory order, regardless of the shape."""
    target.copy_(source if target.shape == source.shape else source.reshape(target.shape))


def reduced(tensors: list[Tensor], op: Any) -> Tensor:
    """The reduction of the ranks' tensors, one rank after the other, as in a ring that begins at rank 0."""
    first = tensors[0]
    dtype = first.dtype
    kind = op.op
    if dtype is torch.bool:
        kind = {_Op.SUM: _Op.MAX}.get(kind, kind)
        tensors = [tensor.to(torch.uint8) for tensor in tensors]
    elif dtype in _FLOAT8:
        tensors = [tensor.float() for tensor in tensors]
    if kind in (_Op.AVG, _Op.PREMUL_SUM) and tensors[0].dtype.is_floating_point:
        factor = 1 / len(tensors) if kind == _Op.AVG else premultiplier(op)
        tensors = [tensor * factor for tensor in tensors]
    combine = _COMBINE[kind]
    total = tensors[0].clone()
    for tensor in tensors[1:]:
        total = combine(total, tensor)
        if dtype in _FLOAT8:
            total = total.to(dtype).float()
    if kind == _Op.AVG and not total.dtype.is_floating_point:
        total = torch.div(total, len(tensors), rounding_mode="trunc")
    return total.to(dtype)


def premultiplier(op: Any) -> Any:
    """The argument of ``_make_nccl_premul_sum``: a number or a tensor with one element."""
    factor = op.__getstate__()[1]
    return inner(factor).reshape(()) if isinstance(factor, torch.Tensor) else factor


_COMBINE: dict[Any, Callable[[Tensor, Tensor], Tensor]] = {
    _Op.SUM: torch.Tensor.add_,
    _Op.AVG: torch.Tensor.add_,
    _Op.PREMUL_SUM: torch.Tensor.add_,
    _Op.PRODUCT: torch.Tensor.mul_,
    _Op.MIN: torch.minimum,
    _Op.MAX: torch.maximum,
    _Op.BAND: torch.bitwise_and,
    _Op.BOR: torch.bitwise_or,
    _Op.BXOR: torch.bitwise_xor,
}


def _all_reduce(parts: Parts) -> None:
    given = [[inner(tensor) for tensor in part.inputs] for part in parts]
    if parts[0].channel.backend == "gloo" and len(given[0]) > 1:
        given = [[tensor.clone() for tensor in tensors] for tensors in given]  # Gloo flattens the list first
    for place in range(len(parts[0].inputs)):
        sources = [tensors[place] for tensors in given]
        targets = [inner(part.outputs[place]) for part in parts]
        if not sources[0].is_meta and all(tensor.is_contiguous() for tensor in (*sources, *targets)):
            pieces = list(zip(*(torch.split(tensor.view(-1), _PIECE) for tensor in (*sources, *targets)), strict=True))
        else:
            pieces = [(*sources, *targets)]
        for piece in pieces:
            total = reduced(list(piece[: len(parts)]), parts[0].reduce_op)
            for target in piece[len(parts) :]:
                put(target, total)


def _reduce(parts: Parts) -> None:
    root = parts[parts[0].root]
    total = reduced([inner(part.inputs[0]) for part in parts], root.reduce_op)
    put(inner(root.outputs[0]), total)


def _broadcast(parts: Parts) -> None:
    root = parts[0].root
    for place, tensor in enumerate(parts[root].inputs):
        for part in parts:
            if part.rank != root:
                put(inner(part.outputs[place]), inner(tensor))


def _all_gather(parts: Parts) -> None:
    values = snapshot([part.inputs[0] for part in parts])  # an input may be one of the outputs
    for part in parts:
        for target, source in zip(part.outputs, values, strict=True):
            put(inner(target), source)


def _all_gather_into_tensor(parts: Parts) -> None:
    for place in range(len(parts[0].inputs)):
        gathered = torch.cat([inner(part.inputs[place]).reshape(-1) for part in parts])
        for part in parts:
            put(inner(part.outputs[place]), gathered)


def _gather(parts: Parts) -> None:
    values = snapshot([part.inputs[0] for part in parts])
    for target, source in zip(parts[parts[0].root].outputs, values, strict=True):
        put(inner(target), source)


def _scatter(parts: Parts) -> None:
    values = snapshot(parts[parts[0].root].inputs)
    for part, source in zip(parts, values, strict=True):
        put(inner(part.outputs[0]), source)


def _reduce_scatter(parts: Parts) -> None:
    results = [
        reduced([inner(part.inputs[place]) for part in parts], parts[0].reduce_op) for place in range(len(parts))
    ]
    for part, result in zip(parts, results, strict=True):
        put(inner(part.outputs[0]), result)


def _reduce_scatter_tensor(parts: Parts) -> None:
    for place in range(len(parts[0].inputs)):
        shares = [inner(part.inputs[place]).reshape(-1).tensor_split(len(parts)) for part in parts]
        for part in parts:
            total = reduced([share[part.rank] for share in shares], parts[0].reduce_op)
            put(inner(part.outputs[place]), total)


def _all_to_all(parts: Parts) -> None:
    values = [snapshot(part.inputs) for part in parts]
    for part in parts:
        for source, target in enumerate(part.outputs):
            put(inner(target), values[source][part.rank])


def _all_to_all_single(parts: Parts) -> None:
    shares = []
    for part in parts:
        values = inner(part.inputs[0]).clone()
        shares.append(portions(values, part.splits[1], len(parts)))
    for part in parts:
        for source, target in enumerate(portions(inner(part.outputs[0]), part.splits[0], len(parts))):
            put(target, shares[source][part.rank])


def portions(values: Tensor, splits: Sequence[int], count: int) -> list[Tensor]:
    """Each rank's rows of a tensor: as many as `splits` says, or the same number for all."""
    sizes = list(splits) or [values.shape[0] // count] * count
    return list(torch.split(values, sizes))


_PERFORM: dict[str, Callable[[Parts], None]] = by_kind(
    all_reduce=_all_reduce,
    broadcast=_broadcast,
    reduce=_reduce,
    all_gather=_all_gather,
    all_gather_into_tensor=_all_gather_into_tensor,
    gather=_gather,
    scatter=_scatter,
    reduce_scatter=_reduce_scatter,
    reduce_scatter_tensor=_reduce_scatter_tensor,
    all_to_all=_all_to_all,
    all_to_all_single=_all_to_all_single,
    barrier=lambda parts: None,
)
