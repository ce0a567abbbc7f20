"""Dropout as one kernel, with CUDA's mask: aten/src/ATen/native/cuda/Dropout.cu.

A thread takes several neighbouring elements at once. How many depends on the dtype, the alignment and the number of
elements, so the same seed drops different elements of 1000 numbers than of 1001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.random.distributions import supported
from fakegpu_lab.driver.random.elementwise_rng import Sink, launch
from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.random.generators import CudaGenerator
    from fakegpu_lab.hardware.device import Device

    Arguments = dict[str, Any]


def dropout(tensor: torch.Tensor, keep: float, device: Device, generator: CudaGenerator, mask_type: torch.dtype) -> Any:
    """`dropout_cuda` of cuda/Dropout.cu: the scaled tensor with zeros where elements drop, and its mask."""
    mask = torch.empty_like(tensor, dtype=mask_type)
    numel = tensor.numel()
    if not numel:
        return tensor.clone(), mask
    result = torch.empty_like(tensor)
    grid = launch(device, numel, 4)
    offset = generator.advance(grid.increment)
    supported("fused_dropout", tensor.dtype)
    if tensor.device.type == "meta":
        return result, mask
    vector = _vector_size(tensor, result)
    double = tensor.dtype is torch.float64
    precise = np.float64 if double else np.float32
    kept = curand.below(float(precise(keep)))
    # The vectorised kernel goes through elements in memory order, the other in row-major order.
    rows = mask.is_contiguous()
    dense = mask if rows else torch.empty(numel, dtype=mask_type)
    sink = Sink(dense)
    if vector == 1:
        curand.fill(sink, generator.state.seed, offset, grid, kept, torch.get_num_threads())
    else:
        _vectors(sink, generator.state.seed, offset, grid.threads, vector, kept)
    if not rows:
        order = list(range(tensor.dim()))
        if vector > 1:
            order.sort(key=tensor.stride, reverse=True)
        mask.permute(order).copy_(dense.view([tensor.shape[d] for d in order]))
    factors = mask.to(torch.float64 if double else torch.float32)
    factors *= float(precise(1.0 / float(precise(keep))))
    if factors.dtype is tensor.dtype:
        torch.mul(tensor, factors, out=result)
    else:
        result.copy_(factors.mul_(tensor))
    return result, mask


def _vector_size(tensor: torch.Tensor, result: torch.Tensor) -> int:
    """The elements that a thread loads at once (cuda/Dropout.cu, get_vector_size): 16 bytes if aligned, else fewer."""
    if not all(torch.ops.aten.is_non_overlapping_and_dense(tensor) for tensor in (tensor, result)):
        return 1
    size = tensor.element_size()
    vector = 16 // size
    while vector > 1 and (tensor.storage_offset() % vector or tensor.numel() % vector):
        vector //= 2
    return vector


class _Part:
    """The part of a sink that `fused_dropout_kernel_vec` writes in a step: each thread's elements of one `curand4`."""

    def __init__(self, sink: Sink, start: int, stop: int, calls: int, call: int, taken: int) -> None:
        self.array = sink.array[start:stop].reshape(-1, calls, taken)[:, call]

    def __len__(self) -> int:
        return self.array.size

    def __setitem__(self, where: slice, numbers: np.ndarray[Any, Any]) -> None:
        taken = self.array.shape[1]
        self.array[where.start // taken : where.stop // taken, where.start % taken] = numbers


def _vectors(sink: Sink, seed: int, offset: int, threads: int, vector: int, kept: curand.Lanes) -> None:
    """Draw the mask as `fused_dropout_kernel_vec` does: `vector` neighbouring elements for each thread and step.

    A step takes one `curand4` for 2 or 4 elements (for 2, half of it is unused), two for 8.
    """
    calls = max(1, vector // 4)
    taken = min(vector, 4)
    numel = len(sink)
    for step, start in enumerate(range(0, numel, threads * vector)):
        for call in range(calls):
            part = _Part(sink, start, min(start + threads * vector, numel), calls, call, taken)
            at = offset + 4 * (step * calls + call)
            curand.interleaved(part, seed, at, kept, taken, torch.get_num_threads())


def native_dropout(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """Dropout in training; CUDA's shortcuts return the input, or zeros, without drawing."""
    tensor, p, train = arguments["input"], arguments["p"], arguments["train"]
    if train is not None and not train:
        return tensor.clone(), torch.ones_like(tensor, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(tensor), torch.zeros_like(tensor, dtype=torch.bool)
    return dropout(tensor, 1.0 - p, device, generator, torch.bool)


def fused_dropout(op: Op, device: Device, generator: CudaGenerator, arguments: Arguments) -> Any:
    """`_fused_dropout`, which has no CPU kernel; its `p` is the probability to keep."""
    return dropout(arguments["self"], arguments["p"], device, generator, torch.uint8)
