"""NCCL over several devices of one process, without ranks, as `comm` and so `nn.DataParallel` use it.

Follows torch/csrc/cuda/nccl.cpp. Each device's part runs on its current stream, or on the stream that was given.
Collectives between ranks are in `fakegpu_lab.ranks`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.copies.transfer import usable
from fakegpu_lab.hardware.time.clock import here
from fakegpu_lab.hardware.transfers import collectives

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fakegpu_lab.hardware.network.nccl import Operation

    Tensor = torch.Tensor

_REDUCTIONS = (torch.add, torch.mul, torch.maximum, torch.minimum, torch.add)  # ncclRedOp_t
_AVG = 4


def is_available(tensors: Sequence[Tensor]) -> bool:
    """Whether NCCL can work on the tensors: dense, contiguous, each on a GPU of its own."""
    devices = [tensor.get_device() for tensor in tensors if tensor.is_cuda]
    fit = all(tensor.is_cuda and not tensor.is_sparse and tensor.is_contiguous() for tensor in tensors)
    return fit and len(set(devices)) == len(tensors)


def _check(tensors: Sequence[Tensor]) -> None:
    """Raise what nccl.cpp raises for tensors that NCCL cannot work on."""
    if not tensors:
        raise RuntimeError("input sequence can't be empty")
    if any(not tensor.is_cuda or tensor.is_sparse for tensor in tensors):
        raise RuntimeError("input and output elements have to be cuda dense Tensors")
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        raise RuntimeError("all inputs and outputs must be of the same Tensor dtype")
    if any(tensor.numel() != tensors[0].numel() for tensor in tensors):
        raise RuntimeError("all inputs must have the same number of elements")
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise RuntimeError("all inputs and outputs must be contiguous")
    if not is_available(tensors):
        raise RuntimeError("inputs must be on unique devices")


def _values(tensor: Tensor) -> Tensor:
    """The values of a tensor, flat; operations on them cost the simulated devices nothing."""
    inner: Tensor = usable(tensor)._inner
    return (torch.view_as_real(inner) if inner.is_complex() else inner).view(-1)


def _take_time(operation: Operation, tensors: Sequence[Tensor], nbytes: int, streams: Any) -> None:
    machine, host = current.machine, here.host
    if machine is None or not nbytes or len(tensors) < 2:
        return
    parts = []
    for position, tensor in enumerate(tensors):
        device = usable(tensor)._device
        given = streams[position] if streams is not None else None
        stream = host.streams[device] if given is None else device.stream_of(given.stream_id)
        parts.append(collectives.launch(host, device, stream, device.index))
    cost = machine.fabric.cost(operation, [part.device.slot for part in parts], nbytes)
    number = parts[0].device.ledger.collective_count + 1
    collectives.run(f"nccl:{operation}", parts, cost, nbytes, number=number)


def reduce(inputs: Sequence[Tensor], output: Tensor, root: int, op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs, one on each device, into a tensor on the root's device."""
    _check(inputs)
    _check([output, *(tensor for tensor in inputs if tensor.get_device() != output.get_device())])
    total = functools.reduce(_REDUCTIONS[op], [_values(tensor) for tensor in inputs])
    with torch.no_grad():
        _values(output).copy_(total / len(inputs) if op == _AVG else total)
    _take_time("reduce", inputs, output.nbytes, streams)


def broadcast(inputs: Sequence[Tensor], root: int, streams: Any = None, comms: Any = None) -> None:
    """Copy the root's tensor over all others."""
    _check(inputs)
    with torch.no_grad():
        for tensor in inputs:
            if tensor is not inputs[root]:
                _values(tensor).copy_(_values(inputs[root]))
    _take_time("broadcast", inputs, inputs[0].nbytes, streams)


FUNCTIONS: dict[str, Callable[..., Any]] = {"_nccl_reduce": reduce, "_nccl_broadcast": broadcast}
