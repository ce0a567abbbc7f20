"""Copies and sums over several devices of one process: what `torch.nn.parallel.comm` and `torch.cuda.nccl` call.

torch/csrc/cuda/comm.cpp and python_nccl.cpp. Collectives of several processes are another matter (torch.distributed).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fakegpu_lab.driver.patches import Patches

    Tensor = torch.Tensor


def _at(index: int | None) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device("cuda", index or 0)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> tuple[Tensor, ...]:
    """The tensor on every device; itself where it is already."""
    if not devices:
        raise RuntimeError("Expected at least one device to broadcast to")
    return tuple(tensor if tensor.device == _at(index) else tensor.to(_at(index)) for index in devices)


def broadcast_out(tensor: Tensor, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The tensor copied into every output."""
    for output in outputs:
        output.copy_(tensor)
    return tuple(outputs)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """All tensors on every device, one list for each."""
    if any(tensor.device != _at(devices[0]) for tensor in tensors):
        raise RuntimeError("All tensors must be on devices[0]: " + str(devices[0]))
    return [[tensor if i == 0 else tensor.to(_at(index)) for tensor in tensors] for i, index in enumerate(devices)]


def scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> tuple[Tensor, ...]:
    """The tensor in chunks along `dim`, one for each device."""
    chunks = torch.split(tensor, list(chunk_sizes), dim) if chunk_sizes is not None else tensor.chunk(len(devices), dim)
    return tuple(chunk.to(_at(index)) for chunk, index in zip(chunks, devices, strict=False))


def scatter_out(tensor: Tensor, outputs: Sequence[Tensor], dim: int, streams: Any) -> tuple[Tensor, ...]:
    """The tensor in chunks, copied into the outputs."""
    chunks = torch.split(tensor, [output.size(dim) for output in outputs], dim)
    for output, chunk in zip(outputs, chunks, strict=True):
        output.copy_(chunk)
    return tuple(outputs)


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """The tensors one after the other along `dim`, on one device; -1 is the host."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    index = torch.cuda.current_device() if destination is None else destination
    return torch.cat([tensor.to(_at(index)) for tensor in tensors], dim)


def gather_out(tensors: Sequence[Tensor], output: Tensor, dim: int) -> Tensor:
    """The same, into a tensor."""
    return output.copy_(torch.cat([tensor.to(output.device) for tensor in tensors], dim))


_REDUCTIONS = (torch.add, torch.mul, torch.maximum, torch.minimum)  # ncclRedOp_t


def _reduced(inputs: Sequence[Tensor], op: int, where: torch.device) -> Tensor:
    return functools.reduce(_REDUCTIONS[op], [tensor.to(where) for tensor in inputs])


def nccl_reduce(inputs: Sequence[Tensor], output: Tensor, root: int, op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs, one a device, into a tensor on the root's device."""
    output.copy_(_reduced(inputs, op, inputs[root].device))


def nccl_all_reduce(inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs into an output on every device."""
    total = _reduced(inputs, op, inputs[0].device)
    for output in outputs:
        output.copy_(total)


def nccl_broadcast(inputs: Sequence[Tensor], root: int, streams: Any, comms: Any) -> None:
    """Copy the root's tensor over all others."""
    for tensor in inputs:
        if tensor is not inputs[root]:
            tensor.copy_(inputs[root])


def nccl_all_gather(inputs: Sequence[Tensor], outputs: Sequence[Tensor], streams: Any, comms: Any) -> None:
    """Put all inputs, one after the other, into an output on every device."""
    for output in outputs:
        output.copy_(torch.cat([tensor.reshape(-1).to(output.device) for tensor in inputs]).view_as(output))


def nccl_reduce_scatter(inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs and give each device its part."""
    parts = _reduced(inputs, op, inputs[0].device).reshape(-1).chunk(len(outputs))
    for output, part in zip(outputs, parts, strict=True):
        output.copy_(part.view_as(output))


FUNCTIONS = {
    "_nccl_reduce": nccl_reduce,
    "_nccl_all_reduce": nccl_all_reduce,
    "_nccl_broadcast": nccl_broadcast,
    "_nccl_all_gather": nccl_all_gather,
    "_nccl_reduce_scatter": nccl_reduce_scatter,
    "_broadcast": broadcast,
    "_broadcast_out": broadcast_out,
    "_broadcast_coalesced": broadcast_coalesced,
    "_scatter": scatter,
    "_scatter_out": scatter_out,
    "_gather": gather,
    "_gather_out": gather_out,
}


def install(patches: Patches) -> None:
    """Nothing else refers to these."""
