"""Fills a tensor as CUDA's random kernels do: launch geometry, order of the elements, conversion of the numbers.

Source: aten/src/ATen/native/cuda/DistributionTemplates.h and aten/src/ATen/TensorIterator.cpp.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fakegpu_lab.driver.random.generators import CudaGenerator
    from fakegpu_lab.hardware.device import Device

Array = np.ndarray[Any, Any]
Finish = Callable[[Array], Array | torch.Tensor]

_INT32_MAX = 2**31 - 1


def launch(device: Device, numel: int, lanes: int) -> curand.Grid:
    """The grid of a random kernel on `device`."""
    return curand.grid(numel, lanes, device.profile.sm_count, device.profile.max_threads_per_sm)


class Sink:
    """Writes numbers into a dense tensor of any dtype, a part at a time (`curand.Sink`).

    The host's threads write through a NumPy array, so that torch's modes (such as inference mode) do not matter.
    """

    def __init__(self, tensor: torch.Tensor, finish: Finish | None = None) -> None:
        self.tensor = tensor
        self.dtype = tensor.dtype
        self.finish = finish
        self.same = _NUMPY.get(tensor.dtype)
        self.array = _memory_of(tensor, _RAW[tensor.element_size()] if self.same is None else self.same)

    def __len__(self) -> int:
        return len(self.array)

    def __setitem__(self, where: slice, numbers: Array) -> None:
        values: Any = numbers if self.finish is None else self.finish(numbers)
        if values.__class__ is np.ndarray:
            if values.dtype == self.same:
                self.array[where] = values
                return
            values = torch.from_numpy(values)
        torch.from_numpy(self.array[where]).view(self.dtype).copy_(values)


def _memory_of(tensor: torch.Tensor, dtype: np.dtype[Any]) -> Array:
    """The elements of a dense tensor as an array of `dtype`, valid while the tensor lives.

    `Tensor.numpy` would do it, but its storage could never be resized again (torch/csrc/utils/tensor_numpy.cpp).
    """
    memory: Any = (ctypes.c_byte * tensor.nbytes).from_address(tensor.data_ptr())
    return np.frombuffer(memory, dtype)


_NUMPY: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64), torch.int64: np.dtype(np.int64),
    torch.bool: np.dtype(np.bool_),
}  # fmt: skip
_RAW: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.uint8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


def draw(
    target: torch.Tensor,
    device: Device,
    generator: CudaGenerator,
    lanes: curand.Lanes,
    wide: bool,
    finish: Finish | None,
) -> None:
    """`distribution_nullary_kernel`: fill `target` (an inner tensor).

    Parameters
    ----------
    lanes, wide
        How a thread makes numbers from its words, and whether a number needs two of them.
    finish
        Makes the values from some of these numbers; may overwrite them if they are floats.
    """
    numel = target.numel()
    if not numel:
        return
    grid = launch(device, numel, 2 if wide else 4)
    offset = generator.advance(grid.increment)
    if not _indexable(target):
        for part in _leaves(_in_memory_order(target)):
            draw(part, device, generator, lanes, wide, finish)
        return
    if target.device.type == "meta":
        return
    dense = target if target.is_contiguous() else torch.empty(numel, dtype=target.dtype)
    curand.fill(Sink(dense, finish), generator.state.seed, offset, grid, lanes, torch.get_num_threads())
    if dense is not target:
        ordered = _in_memory_order(target)
        ordered.copy_(dense.view(ordered.shape))


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` with its dimensions sorted by stride, the order in which TensorIterator visits an output."""
    return tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))


def _indexable(tensor: torch.Tensor) -> bool:
    """TensorIterator.cpp, can_use_32bit_indexing: elements and bytes are below 2^31."""
    if tensor.numel() * tensor.element_size() <= _INT32_MAX and tensor.is_contiguous():
        return True
    reach = 1 + sum((n - 1) * s * tensor.element_size() for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() <= _INT32_MAX and reach <= _INT32_MAX


def _leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """TensorIterator.cpp, with_32bit_indexing: split along the widest dimension until each part can be indexed."""
    if tensor.is_contiguous():
        tensor = tensor.view(-1)  # TensorIterator coalesces its dimensions
    if _indexable(tensor):
        yield tensor
        return
    extents = [(n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
    widest = extents.index(max(extents))
    half = tensor.shape[widest] // 2
    yield from _leaves(tensor.narrow(widest, 0, half))
    yield from _leaves(tensor.narrow(widest, half, tensor.shape[widest] - half))
