"""The distributions that fill a tensor in place: PyTorch's CUDA kernels over Philox.

Source: aten/src/ATen/native/cuda/DistributionTemplates.h and aten/src/ATen/core/TransformationHelper.h. Reproduced:
which Philox word goes to which element (also of tensors that are not contiguous, or too large for 32-bit indices),
the generator's offset, the arithmetic and its roundings. Not reproduced in their last digits: functions that a card
approximates in float32, that is `normal_` (sine and cosine), `log_normal_` (`__expf`), `exponential_` and `geometric_`
(`__logf`) and `cauchy_` (`__tanf`, far off near its poles).
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver import dtypes
from fakegpu_lab.hardware import philox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fakegpu_lab.driver.random import CudaGenerator
    from fakegpu_lab.hardware.device import Device

    Array = np.ndarray[Any, Any]
    Arguments = dict[str, Any]
    Finish = Callable[[Array], Array | torch.Tensor]

_INT32_MAX = 2**31 - 1
_ln2 = np.float32(0.693147182)

FLOATING = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_NUMBERS = FLOATING | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def supported(kernel: str, dtype: torch.dtype, allowed: frozenset[torch.dtype] = FLOATING) -> None:
    """Raise what AT_DISPATCH says of a dtype that `kernel` was not compiled for."""
    if dtype not in allowed:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_type(dtype)}'")


def launch(device: Device, numel: int, lanes: int) -> philox.Grid:
    """The grid of a random kernel on that card."""
    return philox.grid(numel, lanes, device.profile.sm_count, device.profile.max_threads_per_sm)


def draw(
    target: torch.Tensor, device: Device, source: CudaGenerator, lanes: philox.Lanes, kind: Any, finish: Finish
) -> None:
    """`distribution_nullary_kernel`: fill `target` (an inner tensor).

    Parameters
    ----------
    lanes, kind
        What a thread makes from its words, and the NumPy dtype of that.
    finish
        Makes the values from those numbers; may write over them.
    """
    numel = target.numel()
    if not numel:
        return
    grid = launch(device, numel, 2 if np.dtype(kind).itemsize == 8 else 4)
    offset = source.advance(grid.increment)
    if not _indexable(target):
        for part in _leaves(_in_memory_order(target)):
            draw(part, device, source, lanes, kind, finish)
        return
    if target.device.type == "meta":
        return
    direct = target.dtype is _SAME.get(np.dtype(kind)) and target.is_contiguous()
    buffer = target.view(-1).numpy() if direct else np.empty(numel, kind)
    philox.fill(buffer, source.state.seed, offset, grid, lanes)
    values = finish(buffer)
    if direct and values is buffer:
        return
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    ordered = target if target.is_contiguous() else _in_memory_order(target)
    ordered.copy_(tensor.view(ordered.shape))


_SAME = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}


def _in_memory_order(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` with its dimensions sorted by stride, as TensorIterator walks through an output."""
    return tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))


def _indexable(tensor: torch.Tensor) -> bool:
    """TensorIterator.cpp, can_use_32bit_indexing: elements and bytes are below 2^31."""
    if tensor.numel() * tensor.element_size() <= _INT32_MAX and tensor.is_contiguous():
        return True
    reach = 1 + sum((n - 1) * s * tensor.element_size() for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() <= _INT32_MAX and reach <= _INT32_MAX


def _leaves(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """TensorIterator.cpp, with_32bit_indexing: halves along the widest dimension until each can be indexed."""
    if tensor.is_contiguous():
        tensor = tensor.view(-1)  # its dimensions coalesce
    if _indexable(tensor):
        yield tensor
        return
    extents = [(n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)]
    widest = extents.index(max(extents))
    half = tensor.shape[widest] // 2
    yield from _leaves(tensor.narrow(widest, 0, half))
    yield from _leaves(tensor.narrow(widest, half, tensor.shape[widest] - half))


def _kind(dtype: torch.dtype) -> type:
    """The type that a distribution is computed in."""
    return np.float64 if dtype is torch.float64 else np.float32


def _uniform(target: torch.Tensor, device: Device, source: CudaGenerator, finish: Finish) -> None:
    """`uniform_and_transform`."""
    double = target.dtype is torch.float64
    draw(target, device, source, philox.uniform_double if double else philox.uniform, _kind(target.dtype), finish)


def _normal(target: torch.Tensor, device: Device, source: CudaGenerator, finish: Finish) -> None:
    """`normal_and_transform`."""
    double = target.dtype is torch.float64
    draw(target, device, source, philox.normal_double if double else philox.normal, _kind(target.dtype), finish)


def _scaled(values: Array, scale: Any, shift: Any) -> Array:
    """``values · scale + shift``, one fused multiply-add on a card: rounded once."""
    if scale == 1 and shift == 0:
        return values
    if values.dtype == np.float32 and shift != 0:
        values[:] = values.astype(np.float64) * float(scale) + float(shift)
        return values
    values *= scale
    if shift != 0:
        values += shift
    return values


def uniform_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Uniform in [from, to): what comes out as `to`, rounded to the dtype, becomes `from`."""
    if target.is_complex():
        target = torch.view_as_real(target)
    low, high = (torch.tensor(float(given[name]), dtype=target.dtype) for name in ("from", "to"))
    kind = _kind(target.dtype)
    start, stop, extent = kind(low.item()), kind(high.item()), kind((high - low).item())

    def finish(values: Array) -> Array | torch.Tensor:
        values = _scaled(values, extent, start)
        if target.dtype is torch.float32 or target.dtype is torch.float64:
            values[values == stop] = start
            return values
        rounded = torch.from_numpy(values).to(target.dtype)
        return rounded.masked_fill_(rounded == high, low)

    _uniform(target, device, source, finish)


def normal_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Normal with `mean` and `std`; the parts of a complex number with half that variance each."""
    mean, std = given["mean"], given["std"]
    if target.is_complex():
        target, std = torch.view_as_real(target), std / math.sqrt(2)
    supported("normal_kernel_cuda", target.dtype)
    kind = _kind(target.dtype)
    _normal(target, device, source, lambda values: _scaled(values, kind(std), kind(mean)))


def log_normal_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """The exponential of a normal number."""
    supported("log_normal_cuda", target.dtype)
    kind = _kind(target.dtype)

    def finish(values: Array) -> Array:
        return np.exp(_scaled(values, kind(given["std"]), kind(given["mean"])), out=values)

    _normal(target, device, source, finish)


def _log(values: Array) -> Array:
    """`at::log`: in float32 a base-2 logarithm times ln 2."""
    if values.dtype == np.float64:
        return np.log(values, out=values)
    np.log2(values, out=values)
    values *= _ln2
    return values


def exponential_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Exponential with rate `lambd`, never 0."""
    if target.dtype not in FLOATING:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {dtypes.scalar_type(target.dtype)}"
        )
    kind = _kind(target.dtype)
    tiny = np.finfo(kind).eps / 2
    scale = kind(-1) / kind(given["lambd"])

    def finish(values: Array) -> Array:
        ones = values >= kind(1) - tiny
        _log(values)[ones] = -tiny
        values *= scale
        return values

    _uniform(target, device, source, finish)


def geometric_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Geometric: trials until the first success, each of probability `p`."""
    supported("geometric_cuda", target.dtype, _NUMBERS)
    kind = _kind(target.dtype)
    p = kind(given["p"])
    failure = kind(math.log1p(-p)) if kind is np.float64 else np.log2(kind(1) - p) * _ln2
    _uniform(target, device, source, lambda values: np.ceil(_log(values) / failure))


def cauchy_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Cauchy around `median` with scale `sigma`."""
    kind = _kind(target.dtype)
    tiny = np.finfo(kind).eps

    def finish(values: Array) -> Array:
        if kind is np.float32:
            np.clip(values, tiny, kind(1) - tiny, out=values)
        values -= kind(0.5)
        values *= kind(math.pi)
        return _scaled(np.tan(values, out=values), kind(given["sigma"]), kind(given["median"]))

    _uniform(target, device, source, finish)


def bernoulli_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """1 with probability `p`, a number (`sampling` has the kernel for a tensor of probabilities)."""
    supported("bernoulli_scalar_cuda_", target.dtype, _NUMBERS | {torch.bool})
    p = _kind(target.dtype)(given["p"])
    _uniform(target, device, source, lambda values: values < p)


def integers(target: torch.Tensor, device: Device, source: CudaGenerator, start: int, extent: int) -> None:
    """`random_from_to_kernel`: integers in [start, start + extent), extent up to 2^64."""
    if extent >= 2**28:  # torch 2.7 and later

        def finish(values: Array) -> Array:
            if extent < 2**64:
                values %= np.uint64(extent)
            values += np.uint64(start % 2**64)
            return values.view(np.int64)

        draw(target, device, source, philox.bits64, np.uint64, finish)
        return
    draw(
        target, device, source, philox.bits32, np.uint32, lambda values: (values % np.uint32(extent)) + np.int64(start)
    )


_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


def _nearest(value: int, dtype: torch.dtype) -> int:
    return int(torch.tensor(value).to(dtype).to(torch.int64))


def _bounds(target: torch.Tensor, low: int, high: int | None) -> tuple[int, int]:
    """First integer and their number (native/DistributionTemplates.h: random_from_to_impl)."""
    digits = _DIGITS.get(target.dtype)
    if high is None and low == -(2**63):
        if target.dtype not in (torch.int64, torch.float64, torch.float32, torch.bfloat16):
            raise RuntimeError("random_full_64_bits_range_kernel_cuda handles only int64, double, float and bfloat16")
        return 0, 2**64
    if digits is not None:  # bounds that do not leave [low, high) when rounded
        above = _nearest(low + 1, target.dtype)
        if above < low:
            low = above + (1 << (abs(low + 1).bit_length() - digits))
        if high is not None and (below := _nearest(high - 1, target.dtype)) >= high:
            high = below - (1 << (abs(high - 1).bit_length() - digits))
    if high is None:
        most = 1 if target.dtype is torch.bool else torch.iinfo(target.dtype).max if digits is None else 1 << digits
        high = most + 1
    return low, high - low


def random_(target: torch.Tensor, device: Device, source: CudaGenerator, given: Arguments) -> None:
    """Integers: in [from, to), in [0, to), or, without bounds, all that the dtype holds exactly from 0."""
    if "to" in given:
        integers(target, device, source, *_bounds(target, given.get("from", 0), given["to"]))
        return
    dtype = target.dtype
    supported("random_kernel_cuda", dtype, _NUMBERS | {torch.bool})
    if dtype in (torch.int64, torch.float64):
        modulus = np.uint64(2**63 if dtype is torch.int64 else 2**53 + 1)
        draw(target, device, source, philox.bits64, np.uint64, lambda values: (values % modulus).view(np.int64))
        return
    digits = _DIGITS.get(dtype)
    most = (1 << digits) + 1 if digits is not None else 2 if dtype is torch.bool else torch.iinfo(dtype).max + 1
    draw(target, device, source, philox.bits32, np.uint32, lambda values: (values % np.uint32(most)).astype(np.int64))


def _in_place(
    kernel: Callable[[torch.Tensor, Device, CudaGenerator, Arguments], None],
    op: Any,
    device: Device,
    source: CudaGenerator,
    given: Arguments,
) -> torch.Tensor:
    """Fill ``self``. The CPU's kernel, on a tensor without elements, checks the arguments as CUDA's does."""
    target: torch.Tensor = given["self"]
    options = {name: value for name, value in given.items() if name not in ("self", "generator")}
    positional = [options.pop(argument.name) for argument in op.schema.arguments[1:] if not argument.kwarg_only]
    if 0 in target.stride() and target.numel() > 1:
        return op.func._op(target, *positional, **options)  # type: ignore[no-any-return] # refuses to write twice
    op.func._op(torch.empty(0, dtype=target.dtype), *positional, **options)
    if target.numel():
        kernel(target, device, source, given)
    return target


KERNELS: dict[str, Callable[[Any, Device, CudaGenerator, Arguments], Any]] = {
    kernel.__name__: partial(_in_place, kernel)
    for kernel in (
        uniform_, normal_, log_normal_, exponential_, geometric_, cauchy_, random_,
    )
}  # fmt: skip
KERNELS["bernoulli_.float"] = partial(_in_place, bernoulli_)
"""By name, or by name and overload: they get the op, the device, the generator and the inner arguments by name."""
