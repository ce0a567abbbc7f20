"""Dropout as one kernel: aten/src/ATen/native/cuda/Dropout.cu, draw by draw.

How many neighbours a thread takes at once follows from the dtype, the alignment and the number of elements, so the
same seed drops other elements of 1000 numbers than of 1001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.random.distributions import supported
from fakegpu_lab.driver.random.elementwise_rng import Sink, launch
from fakegpu_lab.hardware.random import philox

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.random.generators import CudaGenerator
    from fakegpu_lab.hardware.device import Device

    Arguments = dict[str, Any]


def dropout(source_: torch.Tensor, keep: float, device: Device, source: CudaGenerator, mask_type: torch.dtype) -> Any:
    """`dropout_cuda` of cuda/Dropout.cu: the tensor without what is dropped, scaled, and the mask of what is kept."""
    mask = torch.empty_like(source_, dtype=mask_type)
    numel = source_.numel()
    if not numel:
        return source_.clone(), mask
    result = torch.empty_like(source_)
    grid = launch(device, numel, 4)
    offset = source.advance(grid.increment)
    supported("fused_dropout", source_.dtype)
    if source_.device.type == "meta":
        return result, mask
    vector = _vector_size(source_, result)
    double = source_.dtype is torch.float64
    precise = np.float64 if double else np.float32
    kept = philox.below(float(precise(keep)))
    # The vectorised kernel walks through memory, the other through rows.
    rows = mask.is_contiguous()
    dense = mask if rows else torch.empty(numel, dtype=mask_type)
    sink = Sink(dense)
    if vector == 1:
        philox.fill(sink, source.state.seed, offset, grid, kept, torch.get_num_threads())
    else:
        _vectors(sink, source.state.seed, offset, grid.threads, vector, kept)
    if not rows:
        order = list(range(source_.dim()))
        if vector > 1:
            order.sort(key=source_.stride, reverse=True)
        mask.permute(order).copy_(dense.view([source_.shape[d] for d in order]))
    factors = mask.to(torch.float64 if double else torch.float32)
    factors *= float(precise(1.0 / float(precise(keep))))
    if factors.dtype is source_.dtype:
        torch.mul(source_, factors, out=result)
    else:
        result.copy_(factors.mul_(source_))
    return result, mask


def _vector_size(source_: torch.Tensor, result: torch.Tensor) -> int:
    """Elements that a thread loads at once (cuda/Dropout.cu, get_vector_size): 16 bytes if aligned, else fewer."""
    if not all(torch.ops.aten.is_non_overlapping_and_dense(tensor) for tensor in (source_, result)):
        return 1
    size = source_.element_size()
    vector = 16 // size
    while vector > 1 and (source_.storage_offset() % vector or source_.numel() % vector):
        vector //= 2
    return vector


class _Part:
    """What `fused_dropout_kernel_vec` writes of a sink in one step: of each thread, the neighbours of one `curand4`."""

    def __init__(self, sink: Sink, start: int, stop: int, calls: int, call: int, taken: int) -> None:
        self.array = sink.array[start:stop].reshape(-1, calls, taken)[:, call]

    def __len__(self) -> int:
        return self.array.size

    def __setitem__(self, where: slice, numbers: np.ndarray[Any, Any]) -> None:
        taken = self.array.shape[1]
        self.array[where.start // taken : where.stop // taken, where.start % taken] = numbers


def _vectors(sink: Sink, seed: int, offset: int, threads: int, vector: int, kept: philox.Lanes) -> None:
    """What is kept, as `fused_dropout_kernel_vec` draws it: `vector` neighbours from a thread at each step.

    A step takes one `curand4` for 2 or 4 neighbours (for 2, half of it is lost), two for 8.
    """
    calls = max(1, vector // 4)
    taken = min(vector, 4)
    numel = len(sink)
    for step, start in enumerate(range(0, numel, threads * vector)):
        for call in range(calls):
            part = _Part(sink, start, min(start + threads * vector, numel), calls, call, taken)
            at = offset + 4 * (step * calls + call)
            philox.interleaved(part, seed, at, kept, taken, torch.get_num_threads())


def native_dropout(op: Op, device: Device, source: CudaGenerator, given: Arguments) -> Any:
    """Dropout in training; the identity, or zeros, without drawing where CUDA takes a short cut."""
    tensor, p, train = given["input"], given["p"], given["train"]
    if train is not None and not train:
        return tensor.clone(), torch.ones_like(tensor, dtype=torch.bool)
    if p == 1:
        return torch.zeros_like(tensor), torch.zeros_like(tensor, dtype=torch.bool)
    return dropout(tensor, 1.0 - p, device, source, torch.bool)


def fused_dropout(op: Op, device: Device, source: CudaGenerator, given: Arguments) -> Any:
    """`_fused_dropout`, which has no CPU kernel; its `p` is the probability to keep."""
    return dropout(given["self"], given["p"], device, source, torch.uint8)


KERNELS: dict[str, Callable[[Any, Device, CudaGenerator, Arguments], Any]] = {
    "native_dropout": native_dropout,
    "_fused_dropout": fused_dropout,
}
