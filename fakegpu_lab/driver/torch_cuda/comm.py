"""Broadcast, scatter and gather over the devices of one process, for `torch.nn.parallel.comm` and `nn.DataParallel`.

Follows torch/csrc/cuda/comm.cpp: the order and the sentences of its checks, the streams of its copies, its use of NCCL.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import _utils as torch_utils

from fakegpu_lab.driver.base.changes import in_cuda_builds, replaced
from fakegpu_lab.driver.torch_cuda import nccl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Tensor = torch.Tensor

_torch_utils: Any = torch_utils  # has no types
_Stream: Any = torch.cuda.Stream


def _cuda(index: int) -> torch.device:
    if index < 0:
        raise RuntimeError(f"Expected non-negative device index, but got {index}")
    return torch.device("cuda", index)


def _index(tensor: Tensor) -> int:
    return tensor.get_device() if tensor.is_cuda else -1


def _dimension(tensor: Tensor, dim: int) -> int:
    """`dim` counted from 0; raises like `at::maybe_wrap_dim`."""
    if dim < 0 or dim >= tensor.dim():
        tensor.size(dim)  # raises what torch raises
    return dim % max(tensor.dim(), 1)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> tuple[Tensor, ...]:
    """The tensor on every device; on its own device, the tensor itself."""
    if not devices:
        raise RuntimeError("Expected at least one device to broadcast to")
    others = [
        torch.empty(tensor.shape, dtype=tensor.dtype, layout=tensor.layout, device=_cuda(index))
        for index in devices
        if _cuda(index).index != _index(tensor)
    ]
    if nccl.is_available([tensor, *others]):
        nccl.broadcast([tensor, *others], 0)
    else:
        for other in others:
            other.copy_(tensor, non_blocking=True)
    made = iter(others)
    return tuple(tensor if index == _index(tensor) else next(made) for index in devices)


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """All tensors on every device, one list for each device; small ones are sent in buffers of `buffer_size` bytes."""
    if any(_index(tensor) != devices[0] for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    outputs: list[list[Tensor]] = [list(tensors), *([] for _ in devices[1:])]
    with torch.cuda.device(devices[0]):
        for chunk in _torch_utils._take_tensors(tensors, buffer_size):
            if chunk[0].is_sparse:
                indices, values = (broadcast(flat, devices) for flat in _torch_utils._flatten_sparse_tensors(chunk))
                flats: Any = list(zip(indices, values, strict=True))
            else:
                flats = broadcast(_torch_utils._flatten_dense_tensors(chunk), devices)
            for output, flat in list(zip(outputs, flats, strict=True))[1:]:
                unflatten: Any = (
                    _torch_utils._unflatten_sparse_tensors
                    if chunk[0].is_sparse
                    else _torch_utils._unflatten_dense_tensors
                )
                whole = unflatten(flat, chunk)
                output += [tensor.data for tensor in whole]  # each with a version counter of its own
    if len({tensor.type() for tensor in tensors}) > 1:
        outputs[1:] = [list(_torch_utils._reorder_tensors_as(output, tensors)) for output in outputs[1:]]
    return outputs


def _on(streams: Any, i: int, index: int) -> Any:
    """A context in which the stream given for a copy, if there is one, is current."""
    stream = streams[i] if streams is not None and i < len(streams) else None
    if stream is None:
        return nullcontext()
    if stream.device_index != index:
        raise RuntimeError(
            f"Expected the device associated with the stream at index {i} (was {stream.device_index}) to match the "
            f"device supplied at that index (expected {index})"
        )
    return torch.cuda.stream(_Stream(stream_id=stream.stream_id, device_index=index, device_type=1))


def scatter(
    tensor: Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any
) -> tuple[Tensor, ...]:
    """The tensor in chunks along `dim`, one for each device; on its own device, a view."""
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    dim = _dimension(tensor, dim)
    chunks = tensor.chunk(len(devices), dim) if chunk_sizes is None else torch.split(tensor, list(chunk_sizes), dim)
    parts = []
    for i, (chunk, index) in enumerate(zip(chunks, devices, strict=False)):
        if index != _index(tensor):
            with _on(streams, i, index):
                chunk = chunk.to(_cuda(index), non_blocking=True)  # noqa: PLW2901
        parts.append(chunk)
    return tuple(parts)


def _gathered_size(tensors: Sequence[Tensor], dim: int) -> list[int]:
    """Check the tensors, and return their size together."""
    expected = list(tensors[0].shape)
    total = 0
    for i, tensor in enumerate(tensors):
        if not tensor.is_cuda:
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {i} has device '{tensor.device}'"
            )
        if tensor.dim() != len(expected):
            raise RuntimeError(
                f"Expected all input tensors to have the same number of dimensions, but tensor at index {i}has "
                f"{tensor.dim()} dimensions, (expected {len(expected)})"
            )
        expected[dim] = tensor.size(dim)
        if list(tensor.shape) != expected:
            raise RuntimeError(
                f"Input tensor at index {i} has invalid shape {list(tensor.shape)}, but expected {expected}"
            )
        total += tensor.size(dim)
    expected[dim] = total
    return expected


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    """The tensors concatenated along `dim` on one device; -1 is the host."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    dim = _dimension(tensors[0], dim)
    size = _gathered_size(tensors, dim)
    last = torch.channels_last if len(size) == 4 else torch.channels_last_3d
    channels_last = len(size) in (4, 5) and all(
        tensor.is_contiguous(memory_format=last) and not tensor.is_contiguous() for tensor in tensors
    )
    where = "cpu" if destination == -1 else _cuda(torch.cuda.current_device() if destination is None else destination)
    memory_format = last if channels_last else torch.contiguous_format
    output = torch.empty(size, dtype=tensors[0].dtype, device=where, memory_format=memory_format)
    for chunk, tensor in zip(torch.split(output, [tensor.size(dim) for tensor in tensors], dim), tensors, strict=True):
        chunk.copy_(tensor, non_blocking=output.is_cuda)
    return output


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **nccl.FUNCTIONS,
    "_broadcast": broadcast,
    "_broadcast_coalesced": broadcast_coalesced,
    "_scatter": scatter,
    "_gather": gather,
}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    replaced("torch.nn.parallel._functions._streams", None, "DataParallel's streams may be another machine's"),
]
