"""Distributions that fill a tensor in place (`normal_`, `uniform_`, `random_`, …), as PyTorch's CUDA kernels do.

Source: aten/src/ATen/native/cuda/DistributionTemplates.h and aten/src/ATen/core/TransformationHelper.h. Reproduced are
the Philox word of each element (also in tensors that are not contiguous, or too large for 32-bit indices), the
generator's offset, the arithmetic and its rounding. The last digits can differ where a GPU approximates a function in
float32: `normal_` (sine and cosine), `log_normal_` (`__expf`), `exponential_` and `geometric_` (`__logf`) and `cauchy_`
(`__tanf`, far off near its poles).
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fakegpu_lab.driver.placement import dtypes
from fakegpu_lab.driver.random.elementwise_rng import draw
from fakegpu_lab.hardware.philox import curand

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.random.elementwise_rng import Array, Finish
    from fakegpu_lab.driver.random.generators import CudaGenerator
    from fakegpu_lab.hardware.device import Device

    Arguments = dict[str, Any]
    Fill = Callable[[torch.Tensor, Device, CudaGenerator, Arguments], None]

_ln2 = np.float32(0.693147182)

FLOATING = frozenset((torch.float32, torch.float64, torch.float16, torch.bfloat16))
_NUMBERS = FLOATING | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}


def supported(kernel: str, dtype: torch.dtype, allowed: frozenset[torch.dtype] = FLOATING) -> None:
    """Raise AT_DISPATCH's error for a dtype that `kernel` was not compiled for."""
    if dtype not in allowed:
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_type(dtype)}'")


def _kind(dtype: torch.dtype) -> type:
    """The type that a distribution is computed in."""
    return np.float64 if dtype is torch.float64 else np.float32


def _uniform(target: torch.Tensor, device: Device, generator: CudaGenerator, finish: Finish) -> None:
    """`uniform_and_transform`."""
    double = target.dtype is torch.float64
    draw(target, device, generator, curand.uniform_double if double else curand.uniform, double, finish)


def _normal(target: torch.Tensor, device: Device, generator: CudaGenerator, finish: Finish) -> None:
    """`normal_and_transform`."""
    double = target.dtype is torch.float64
    draw(target, device, generator, curand.normal_double if double else curand.normal, double, finish)


def _scaled(values: Array, scale: Any, shift: Any) -> Array:
    """``values · scale + shift``: one fused multiply-add on a GPU, rounded once."""
    if scale == 1 and shift == 0:
        return values
    if values.dtype == np.float32 and shift != 0:
        exact = values.astype(np.float64)
        exact *= float(scale)
        exact += float(shift)
        values[:] = exact
        return values
    values *= scale
    if shift != 0:
        values += shift
    return values


@lru_cache(maxsize=256)
def _interval(low: float, high: float, dtype: torch.dtype) -> tuple[float, float, float]:
    """Both bounds and their difference, rounded to the dtype."""
    start, stop = (torch.tensor(bound, dtype=dtype) for bound in (low, high))
    return start.item(), stop.item(), (stop - start).item()


def uniform_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Uniform in [from, to): a value that the dtype rounds to `to` becomes `from`."""
    if target.is_complex():
        target = torch.view_as_real(target)
    dtype = target.dtype
    low, high, difference = _interval(float(arguments["from"]), float(arguments["to"]), dtype)
    kind = _kind(dtype)
    start, stop, extent = kind(low), kind(high), kind(difference)

    def finish(values: Array) -> Array | torch.Tensor:
        values = _scaled(values, extent, start)
        if dtype is torch.float32 or dtype is torch.float64:
            above = values == stop
            if above.any():
                values[above] = start
            return values
        rounded = torch.from_numpy(values).to(dtype)
        return rounded.masked_fill_(rounded == high, low)

    _uniform(target, device, generator, finish)


def normal_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Normal with `mean` and `std`; the real and imaginary part of a complex number have half the variance each."""
    mean, std = arguments["mean"], arguments["std"]
    if target.is_complex():
        target, std = torch.view_as_real(target), std / math.sqrt(2)
    supported("normal_kernel_cuda", target.dtype)
    kind = _kind(target.dtype)
    scale, shift = kind(std), kind(mean)
    _normal(target, device, generator, lambda values: _scaled(values, scale, shift))


def log_normal_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """The exponential of a normal number."""
    supported("log_normal_cuda", target.dtype)
    kind = _kind(target.dtype)

    def finish(values: Array) -> Array:
        return np.exp(_scaled(values, kind(arguments["std"]), kind(arguments["mean"])), out=values)

    _normal(target, device, generator, finish)


def _log(values: Array) -> Array:
    """`at::log`: in float32 a base-2 logarithm times ln 2."""
    if values.dtype == np.float64:
        return np.log(values, out=values)
    np.log2(values, out=values)
    values *= _ln2
    return values


def exponential_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Exponential with rate `lambd`, never 0."""
    if target.dtype not in FLOATING:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
            f"specified {dtypes.scalar_type(target.dtype)}"
        )
    kind = _kind(target.dtype)
    tiny = np.finfo(kind).eps / 2
    scale = kind(-1) / kind(arguments["lambd"])

    def finish(values: Array) -> Array:
        ones = values >= kind(1) - tiny
        _log(values)[ones] = -tiny
        values *= scale
        return values

    _uniform(target, device, generator, finish)


def geometric_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Geometric: trials with probability `p` until the first success."""
    supported("geometric_cuda", target.dtype, _NUMBERS)
    kind = _kind(target.dtype)
    p = kind(arguments["p"])
    failure = kind(math.log1p(-p)) if kind is np.float64 else np.log2(kind(1) - p) * _ln2
    _uniform(target, device, generator, lambda values: np.ceil(_log(values) / failure))


def cauchy_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Cauchy around `median` with scale `sigma`."""
    kind = _kind(target.dtype)
    tiny = np.finfo(kind).eps

    def finish(values: Array) -> Array:
        if kind is np.float32:
            np.clip(values, tiny, kind(1) - tiny, out=values)
        values -= kind(0.5)
        values *= kind(math.pi)
        return _scaled(np.tan(values, out=values), kind(arguments["sigma"]), kind(arguments["median"]))

    _uniform(target, device, generator, finish)


def bernoulli_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """1 with probability `p`, a number; `sampling` has the kernel for a tensor of probabilities."""
    supported("bernoulli_scalar_cuda_", target.dtype, _NUMBERS | {torch.bool})
    p = arguments["p"]
    if target.dtype is torch.float64:
        _uniform(target, device, generator, lambda values: values < p)
    else:
        draw(target, device, generator, curand.below(float(np.float32(p))), False, None)


def integers(target: torch.Tensor, device: Device, generator: CudaGenerator, start: int, extent: int) -> None:
    """`random_from_to_kernel`: integers in [start, start + extent), extent up to 2^64."""
    if extent >= 2**28:  # torch 2.7 and later

        def finish(values: Array) -> Array:
            if extent < 2**64:
                values %= np.uint64(extent)
            values += np.uint64(start % 2**64)
            return values.view(np.int64)

        draw(target, device, generator, curand.bits64, True, finish)
        return
    draw(target, device, generator, curand.bits32, False, lambda values: (values % np.uint32(extent)) + np.int64(start))


_DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


def _nearest(value: int, dtype: torch.dtype) -> int:
    return int(torch.tensor(value).to(dtype).to(torch.int64))


def _bounds(target: torch.Tensor, low: int, high: int | None) -> tuple[int, int]:
    """The first integer and the number of integers (native/DistributionTemplates.h: random_from_to_impl)."""
    digits = _DIGITS.get(target.dtype)
    if high is None and low == -(2**63):
        if target.dtype not in (torch.int64, torch.float64, torch.float32, torch.bfloat16):
            raise RuntimeError("random_full_64_bits_range_kernel_cuda handles only int64, double, float and bfloat16")
        return 0, 2**64
    if digits is not None:  # rounded bounds must stay in [low, high)
        above = _nearest(low + 1, target.dtype)
        if above < low:
            low = above + (1 << (abs(low + 1).bit_length() - digits))
        if high is not None and (below := _nearest(high - 1, target.dtype)) >= high:
            high = below - (1 << (abs(high - 1).bit_length() - digits))
    if high is None:
        most = 1 if target.dtype is torch.bool else torch.iinfo(target.dtype).max if digits is None else 1 << digits
        high = most + 1
    return low, high - low


def random_(target: torch.Tensor, device: Device, generator: CudaGenerator, arguments: Arguments) -> None:
    """Integers: in [from, to), in [0, to), or, without bounds, all that the dtype holds exactly from 0."""
    if "to" in arguments:
        integers(target, device, generator, *_bounds(target, arguments.get("from", 0), arguments["to"]))
        return
    dtype = target.dtype
    supported("random_kernel_cuda", dtype, _NUMBERS | {torch.bool})
    if dtype in (torch.int64, torch.float64):
        modulus = np.uint64(2**63 if dtype is torch.int64 else 2**53 + 1)
        draw(target, device, generator, curand.bits64, True, lambda values: (values % modulus).view(np.int64))
        return
    digits = _DIGITS.get(dtype)
    most = (1 << digits) + 1 if digits is not None else 2 if dtype is torch.bool else torch.iinfo(dtype).max + 1
    draw(target, device, generator, curand.bits32, False, lambda values: (values % np.uint32(most)).astype(np.int64))


_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def fills(kernel: Fill) -> Callable[[Any, Device, CudaGenerator, Arguments], torch.Tensor]:
    """For `Row.draws`: `kernel` fills ``self``, after the checks of the arguments that CUDA's kernel makes."""
    return partial(_in_place, kernel)


def _in_place(kernel: Fill, op: Any, device: Device, generator: CudaGenerator, arguments: Arguments) -> torch.Tensor:
    """Fill ``self``; the CPU's kernel, on an empty tensor, makes the same checks of the arguments as CUDA's."""
    target: torch.Tensor = arguments["self"]
    if target.layout in _COMPRESSED:  # `normal_sparse_csr_` (native_functions.yaml)
        _in_place(kernel, op, device, generator, {**arguments, "self": target.values()})
        return target
    options = {name: value for name, value in arguments.items() if name not in ("self", "generator")}
    positional = [options.pop(argument.name) for argument in op.schema.arguments[1:] if not argument.kwarg_only]
    if 0 in target.stride() and target.numel() > 1:
        return op.func._op(target, *positional, **options)  # type: ignore[no-any-return] # refuses to write twice
    # Each call warns of bounds that a floating dtype cannot hold.
    check = _check.__wrapped__ if op.name == "random_" and target.is_floating_point() else _check
    check(op, target.dtype, *positional, *options.items())
    if target.numel():
        kernel(target, device, generator, arguments)
    return target


@lru_cache(maxsize=512)
def _check(op: Any, dtype: torch.dtype, *arguments: Any) -> None:
    """Let the CPU's kernel check the arguments; the cache skips those that it has accepted."""
    options: Arguments = dict(argument for argument in arguments if argument.__class__ is tuple)
    op.func._op(torch.empty(0, dtype=dtype), *arguments[: len(arguments) - len(options)], **options)
