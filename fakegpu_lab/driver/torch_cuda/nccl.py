"""NCCL over several devices of one process, without ranks, for `torch.cuda.nccl` and `comm`.

Follows torch/csrc/cuda/nccl.cpp and python_nccl.cpp, with the sentences of their checks. Each device's part runs on its
current stream, or on the stream that was given. Collectives between ranks are in `fakegpu_lab.ranks`.
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


def _check_one(tensor: Tensor, dtype: torch.dtype) -> None:
    if not tensor.is_cuda or tensor.is_sparse:
        raise RuntimeError("input and output elements have to be cuda dense Tensors")
    if tensor.dtype != dtype:
        raise RuntimeError("all inputs and outputs must be of the same Tensor dtype")
    if not tensor.is_contiguous():
        raise RuntimeError("all inputs and outputs must be contiguous")


def _check(inputs: Sequence[Tensor], outputs: Sequence[Tensor | None], in_times: int, out_times: int) -> None:
    if not inputs:
        raise RuntimeError("input sequence can't be empty")
    if len(inputs) != len(outputs):
        raise RuntimeError(
            "inputs and outputs sequences have to be of the same length, but got input of length "
            f"{len(inputs)} and output of length {len(outputs)}"
        )
    devices: set[int] = set()
    for given, output in zip(inputs, outputs, strict=True):
        _check_one(given, inputs[0].dtype)
        if given.numel() != inputs[0].numel():
            raise RuntimeError("all inputs must have the same number of elements")
        if output is not None:
            _check_one(output, inputs[0].dtype)
            if given.get_device() != output.get_device():
                raise RuntimeError("input and output must be on the same device")
            if output.numel() * out_times != given.numel() * in_times:
                raise RuntimeError("output must be of size input_size * size_multiplier")
        if given.get_device() in devices:
            raise RuntimeError("inputs must be on unique devices")
        devices.add(given.get_device())


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


def _reduced(inputs: Sequence[Tensor], op: int) -> Tensor:
    total = functools.reduce(_REDUCTIONS[op], [_values(tensor) for tensor in inputs])
    return total / len(inputs) if op == _AVG else total


def reduce(inputs: Sequence[Tensor], output: Tensor, root: int, op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs, one on each device, into a tensor on the root's device."""
    _check(inputs, [output if position == root else None for position in range(len(inputs))], 1, 1)
    with torch.no_grad():
        _values(output).copy_(_reduced(inputs, op))
    _take_time("reduce", inputs, output.nbytes, streams)


def all_reduce(inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs into an output on every device."""
    _check(inputs, outputs, 1, 1)
    with torch.no_grad():
        total = _reduced(inputs, op)
        for output in outputs:
            _values(output).copy_(total)
    _take_time("all_reduce", inputs, inputs[0].nbytes, streams)


def broadcast(inputs: Sequence[Tensor], root: int, streams: Any = None, comms: Any = None) -> None:
    """Copy the root's tensor over all others."""
    _check(inputs, inputs, 1, 1)
    with torch.no_grad():
        for tensor in inputs:
            if tensor is not inputs[root]:
                _values(tensor).copy_(_values(inputs[root]))
    _take_time("broadcast", inputs, inputs[0].nbytes, streams)


def all_gather(inputs: Sequence[Tensor], outputs: Sequence[Tensor], streams: Any, comms: Any) -> None:
    """Concatenate all inputs into an output on every device."""
    _check(inputs, outputs, len(inputs), 1)
    with torch.no_grad():
        whole = torch.cat([_values(tensor) for tensor in inputs])
        for output in outputs:
            _values(output).copy_(whole)
    _take_time("all_gather", inputs, outputs[0].nbytes, streams)


def reduce_scatter(inputs: Sequence[Tensor], outputs: Sequence[Tensor], op: int, streams: Any, comms: Any) -> None:
    """Reduce the inputs and give each device its part."""
    _check(inputs, outputs, 1, len(inputs))
    with torch.no_grad():
        for output, part in zip(outputs, _reduced(inputs, op).chunk(len(outputs)), strict=True):
            _values(output).copy_(part)
    _take_time("reduce_scatter", inputs, inputs[0].nbytes, streams)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_nccl_reduce": reduce,
    "_nccl_all_reduce": all_reduce,
    "_nccl_broadcast": broadcast,
    "_nccl_all_gather": all_gather,
    "_nccl_reduce_scatter": reduce_scatter,
}
