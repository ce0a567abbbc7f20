"""Errors where the ranks of a group call different operations: raised at once, where NCCL would hang or mix up numbers.

The messages begin as those of torch's own check, ProcessGroupWrapper (``TORCH_DISTRIBUTED_DEBUG=DETAIL``), or as NCCL's
for two ranks on one device; the end is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.placement.dtypes import scalar_type
from fakegpu_lab.ranks.collectives.operation import P2P
from fakegpu_lab.ranks.dist import dist
from fakegpu_lab.ranks.rank_conditions import rank_condition
from fakegpu_lab.user_code.frames import place, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from fakegpu_lab.ranks.collectives.operation import Operation

_ROOTED = frozenset(("BROADCAST", "REDUCE", "GATHER", "SCATTER"))
_ALL_TO_ALL = ("ALLTOALL", "ALLTOALL_BASE")
_ADVICE = (
    "All ranks of a group must call the same operations in the same order, with tensors of the same size and dtype. "
)
_MESSAGE = "The two ends of a message must have the same number of elements, and the same dtype. "
_ON_REAL_GPUS = "On real GPUs this program hangs, or continues with wrong numbers."


def check(operation: Operation, slot: dict[int, Operation]) -> None:
    """Compare a call with those of other ranks that it would meet.

    Raises
    ------
    torch.distributed.DistBackendError
        They differ, or two ranks use one GPU.
    """
    for other in slot.values():
        _check_devices(operation, other)
        differs = list(_differences(operation, other))
        if differs:
            raise dist.DistBackendError(_mismatch(operation, other, differs))


def refused_message(result: str, meaning: str, last: str) -> str:
    """What a call that NCCL refuses raises (NCCLUtils.hpp, `C10D_NCCL_CHECK`): its result, and its own last error."""
    return (
        f"NCCL error in: torch/csrc/distributed/c10d/NCCLUtils.cpp, {result} (run with NCCL_DEBUG=WARN for details)\n"
        f"{meaning}\nLast error:\n{last}"
    )


def _check_devices(operation: Operation, other: Operation) -> None:
    if operation.channel.backend != "nccl" or operation.device is None or operation.device is not other.device:
        return
    if operation.rank == other.rank:
        return
    device = operation.device
    first, second = sorted((operation.global_rank, other.global_rank))
    refused = refused_message(
        "invalid usage",
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        f"Duplicate GPU detected : rank {second} and rank {first} both on CUDA device {_bus_id(device.index)}",
    )
    raise dist.DistBackendError(
        f"{refused}\n\n"
        f"Ranks {first} and {second} both use cuda:{device.index} ({quoted(operation.line)}). NCCL needs a device "
        "for each rank: call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before tensors and models are made, "
        'and say "cuda", not "cuda:0".'
    )


def _bus_id(index: int) -> str:
    """A device's PCI address as NCCL prints it: hexadecimal digits without leading zeros."""
    import torch

    properties: Any = torch.cuda.get_device_properties(index)
    domain, bus, place = (getattr(properties, f"pci_{part}_id", 0) for part in ("domain", "bus", "device"))
    return f"{domain << 20 | bus << 12 | place << 4:x}"


def _differences(one: Operation, other: Operation) -> Iterator[tuple[str, str, str]]:
    """The differences between two calls: ``(aspect, one's, the other's)``."""
    if one.kind in P2P:
        sent, got = other.inputs[0], one.outputs[0]
        if sent.numel() != got.numel():
            yield "Tensor Tensor shapes", str(list(got.shape)), str(list(sent.shape))
        elif sent.dtype != got.dtype:
            yield "Tensor Tensor dtypes", scalar_type(got.dtype), scalar_type(sent.dtype)
        return
    if one.kind != other.kind:
        yield "Op type", one.kind, other.kind
        return
    if one.kind in _ROOTED and one.root != other.root:
        yield "root", str(one.root), str(other.root)
    if one.reduce_op is not None and one.reduce_op != other.reduce_op:
        yield "reduce op", one.reduce_op.op.name, other.reduce_op.op.name
    mine, theirs = _sizes(one, other)
    if mine != theirs:
        yield from _extents(one, other)
    if _types(one) != _types(other):
        yield "Tensor Tensor dtypes", ", ".join(_types(one)), ", ".join(_types(other))


def _sizes(one: Operation, other: Operation) -> tuple[list[int], list[int]]:
    """Numbers of elements that must be the same in two calls: what one has, what the other expects."""
    if one.kind == "ALLGATHER":
        return (
            [one.inputs[0].numel(), one.outputs[other.rank].numel()],
            [other.outputs[one.rank].numel(), other.inputs[0].numel()],
        )
    if one.kind in _ALL_TO_ALL:
        (sent, kept), (their_sent, their_kept) = _parts(one), _parts(other)
        return [sent[other.rank], kept[other.rank]], [their_kept[one.rank], their_sent[one.rank]]
    if one.kind in ("SCATTER", "GATHER"):
        return [_tensors(one)[0].numel()], [_tensors(other)[0].numel()]
    return [tensor.numel() for tensor in one.main_tensors], [tensor.numel() for tensor in other.main_tensors]


def _parts(operation: Operation) -> tuple[list[int], list[int]]:
    """Numbers of elements that go to each rank, and that come from each."""
    if operation.kind == "ALLTOALL":
        return [tensor.numel() for tensor in operation.inputs], [tensor.numel() for tensor in operation.outputs]
    size = operation.channel.size
    counts = []
    for tensor, splits in ((operation.inputs[0], operation.splits[1]), (operation.outputs[0], operation.splits[0])):
        rows = list(splits) or [tensor.shape[0] // size] * size
        each = tensor.numel() // tensor.shape[0] if tensor.shape[0] else 0
        counts.append([count * each for count in rows])
    return counts[0], counts[1]


def _tensors(operation: Operation) -> list[torch.Tensor]:
    return operation.outputs if operation.kind == "SCATTER" else operation.main_tensors


def _types(operation: Operation) -> list[str]:
    return sorted({scalar_type(tensor.dtype) for tensor in _tensors(operation)})


def _shapes(operation: Operation) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in _tensors(operation))


def fingerprint(operation: Operation) -> str:
    """A call as ProcessGroupWrapper prints its CollectiveFingerPrint."""
    tensors = _tensors(operation)
    text = f"CollectiveFingerPrint(SequenceNumber={operation.number}, OpType={operation.kind}"
    if tensors and operation.kind != "BARRIER":
        device = "cuda" if tensors[0].is_cuda else "cpu"
        text += (
            f", TensorShape={_shapes(operation)}, TensorDtypes={scalar_type(tensors[0].dtype)}, "
            f"TensorDeviceTypes=TensorOptions(dtype=float (default), device={device}, layout=Strided (default), "
            "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))"
        )
    return text + ")"


def _extents(one: Operation, other: Operation) -> Iterator[tuple[str, str, str]]:
    """The differences between the first tensors' shapes, dimension by dimension, as ProcessGroupWrapper prints them."""
    mine, theirs = list(_tensors(one)[0].shape), list(_tensors(other)[0].shape)
    if len(mine) != len(theirs) or mine == theirs:
        yield "Tensor Tensor shapes", _shapes(one), _shapes(other)
        return
    for extent, another in zip(mine, theirs, strict=True):
        if extent != another:
            yield "Tensor Tensor shapes", str(extent), str(another)


def _mismatch(one: Operation, other: Operation, differs: list[tuple[str, str, str]]) -> str:
    aspects = "".join(f"  {aspect}: {mine}vs {theirs}" for aspect, mine, theirs in differs)
    where = f"operation {one.number} of {one.channel.known_as}" if one.number else one.channel.known_as
    advice = _MESSAGE if one.kind in P2P else _condition(one, other) + (_unequal_parts(one, other) or _ADVICE)
    return (
        f"Detected mismatch between collectives on ranks. Rank {one.global_rank} is running collective: "
        f"{fingerprint(one)}, but Rank {other.global_rank} is running collective: {fingerprint(other)}."
        f"Collectives differ in the following aspects: {aspects}\n\n"
        f"In {where}, rank {other.global_rank} calls {other} ({quoted(other.line)}), "
        f"rank {one.global_rank} {one} ({quoted(one.line)}).\n{advice}{_ON_REAL_GPUS}"
    )


def _unequal_parts(one: Operation, other: Operation) -> str:
    """What is sent between two ranks of an all-to-all and not expected so; empty if that is not what differs."""
    if one.kind != other.kind or one.kind not in _ALL_TO_ALL:
        return ""
    (sent, kept), (their_kept, their_sent) = _sizes(one, other)
    said = [
        f"Rank {receiver.global_rank} expects {expected:,} elements from rank {sender.global_rank}, "
        f"which sends it {found:,}. "
        for receiver, sender, expected, found in ((one, other, kept, their_sent), (other, one, their_kept, sent))
        if expected != found
    ]
    rule = "What rank i receives from rank j must be as large as what rank j sends to rank i. "
    return "".join(said) + rule if said else ""


def _condition(*calls: Operation) -> str:
    """A question about an ``if`` around the line of one of the calls that mentions a rank; or empty."""
    for call in calls:
        condition = rank_condition(call.line)
        if condition is not None:
            where = place(call.line).label
            return f"{where} is inside `if {condition[1]}` (line {condition[0]}): does every rank enter it? "
    return ""
