"""Dropout as one kernel: aten/src/ATen/native/cuda/Dropout.cu, draw by draw.

How many neighbours a thread takes at once follows from the dtype, the alignment and the number of elements, so the
same seed drops other elements of 1000 numbers than of 1001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.distributions import launch, supported
from fakegpu_lab.hardware import philox

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.op import Op
    from fakegpu_lab.driver.random import CudaGenerator
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
    drawn = np.empty(numel, np.float32)
    if vector == 1:
        philox.fill(drawn, source.state.seed, offset, grid, philox.uniform)
    else:
        _vectors(drawn, source.state.seed, offset, grid.threads, vector)
    precise = np.float64 if source_.dtype is torch.float64 else np.float32
    kept = torch.from_numpy(drawn < precise(keep))
    if vector > 1:  # walks through memory; the other kernel through rows
        order = sorted(range(source_.dim()), key=source_.stride, reverse=True)
        mask.permute(order).copy_(kept.view([source_.shape[d] for d in order]))
    else:
        mask.copy_(kept.view(source_.shape))
    accumulator = torch.float64 if source_.dtype is torch.float64 else torch.float32
    scale = float(precise(1.0 / float(precise(keep))))
    result.copy_(source_.to(accumulator).mul(mask).mul_(scale))
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


def _vectors(out: np.ndarray[Any, Any], seed: int, offset: int, threads: int, vector: int) -> None:
    """Uniform numbers as `fused_dropout_kernel_vec` spends them: `vector` neighbours from a thread at each step.

    A step takes one `curand4` for 2 or 4 neighbours (for 2, half of it is lost), two for 8.
    """
    calls = max(1, vector // 4)
    taken = min(vector, 4)
    for step, start in enumerate(range(0, len(out), threads * vector)):
        part = out[start : start + threads * vector].reshape(-1, calls, taken)
        for call in range(calls):
            lane = np.empty(len(part) * taken, np.float32)
            philox.interleaved(lane, seed, offset + 4 * (step * calls + call), philox.uniform, taken)
            part[:, call] = lane.reshape(-1, taken)


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
