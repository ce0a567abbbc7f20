"""Ops that CUDA computes in another way than the CPU: in other formats, for other dtypes, by other formulas."""

from __future__ import annotations

import functools
import math
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import gelu
from torch.utils._pytree import tree_map

from fakegpu_lab.driver.base.changes import wrapped
from fakegpu_lab.driver.base.half_precision import BOTH, in_float32, into
from fakegpu_lab.driver.base.not_simulated import error
from fakegpu_lab.driver.base.tensor import FakeCudaTensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]
    from collections.abc import Callable


def with_tanh(op: Op, call: Kernel) -> Kernel:
    """`_addmm_activation`, whose GELU is the tanh approximation on CUDA (cuda/Blas.cpp, addmm_out_cuda_impl)."""

    def addmm_activation(*args: Any, use_gelu: bool = False, out: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if not use_gelu:
            return call(*args, **kwargs) if out is None else call(*args, **kwargs, out=out)
        result = gelu(torch.addmm(*args, **kwargs), approximate="tanh")
        return result if out is None else into(out, result)

    return addmm_activation


def forward_in_float32(op: Op, call: Kernel) -> Kernel:
    """`call` of a norm: the result has the input's dtype, saved statistics are float32, running ones as they were."""
    statistics = tuple(op.position[name] for name in ("running_mean", "running_var") if name in op.position)
    return call if op.outs else in_float32(call, BOTH, results=(0,), updates=statistics)


def batch_norm(op: Op, call: Kernel) -> Kernel:
    """`forward_in_float32`; on meta tensors, in evaluation nothing is saved for backward (Normalization.cpp)."""
    compute, training = forward_in_float32(op, call), op.position["training"]

    def batch_norm(source: torch.Tensor, *rest: Any, **kwargs: Any) -> Any:
        results = compute(source, *rest, **kwargs)
        if not source.is_meta or rest[training - 1]:
            return results
        return results[0], source.new_empty(0), source.new_empty(0)

    return batch_norm


def backward_in_float32(weight: int) -> Callable[[Op, Kernel], Kernel]:
    """For `Row.values`: a norm's backward with its weight at this position; gradients have their tensors' dtypes."""

    def values(op: Op, call: Kernel) -> Kernel:
        return call if op.outs else in_float32(call, BOTH, decides=1, results=(1, weight, weight))

    return values


def channels_first(op: Op, call: Kernel) -> Kernel:
    """`call` of a group norm, whose operands CUDA makes contiguous, so its results are.

    For the CPU and for PrivateUse1, ATen keeps channels last (native/group_norm.cpp; pytorch#111824). Where else it
    asks for PrivateUse1, it does what it does for CUDA: fused dropout and recurrent cells, `one_hot`, names, gradients
    from other streams.
    """

    def group_norm(*args: Any, **kwargs: Any) -> Any:
        return call(*(arg.contiguous() if isinstance(arg, torch.Tensor) else arg for arg in args), **kwargs)

    return group_norm


MAX_OF_BAG = 2
"""`embedding_bag`'s mode for maxima (EmbeddingBag.h, EmbeddingBagMode)."""


def nansum(op: Op, call: Kernel) -> Kernel:
    """`nansum` that also takes complex numbers (cuda/ReduceSumProdKernel.cu, nansum_kernel_cuda)."""

    def compute(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_complex():
            return call(self, *args, **kwargs)
        numbers = torch.where(self.isnan(), 0, self)
        return torch.sum(numbers, *(args or (None,)), **kwargs)

    return compute


def without_maxima(op: Op, call: Kernel) -> Kernel:
    """`embedding_bag`, which keeps the indices of maxima only if its mode is max (cuda/EmbeddingBag.cu)."""

    def embedding_bag(*args: Any, **kwargs: Any) -> Any:
        mode = args[4] if len(args) > 4 else kwargs.get("mode", 0)
        results = call(*args, **kwargs)
        return results if mode == MAX_OF_BAG else (*results[:3], results[3].new_empty(0))

    return embedding_bag


_histc: Callable[..., torch.Tensor] = torch.ops.aten.histc.default
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def histc(
    source: torch.Tensor,
    bins: int = 100,
    min: Any = 0,  # noqa: A002 - torch's name
    max: Any = 0,  # noqa: A002 - torch's name
) -> torch.Tensor:
    """``histc``, also of integers, for mixtures of experts (cuda/SummaryOps.cu, _histc_cuda_template and getBin)."""
    low, high = min, max
    if source.dtype is torch.float16:
        raise RuntimeError("HalfTensor is not supported")
    if source.dtype is torch.bfloat16:
        raise NotImplementedError("\"histc\" not implemented for 'BFloat16'")
    if source.is_meta:
        return _histc(source, bins, low, high)
    if bins <= 0:
        raise RuntimeError("bins must be > 0")
    if source.dtype not in _INTEGERS:
        _check_range(source, low, high)
        return _histc(source, bins, low, high)
    values = source.flatten().long()  # for integers, bounds and division are int64
    low, high = int(low), int(high)
    if low == high and values.numel():
        low, high = int(values.min()), int(values.max())
    if low == high:
        low, high = low - 1, high + 1
    if low > high:
        raise RuntimeError("max must be larger than min")
    within = values[(values >= low) & (values <= high)]
    places = ((within - low) * bins).div(high - low, rounding_mode="floor").clamp(max=bins - 1)
    return torch.bincount(places, minlength=bins).to(source.dtype)


def _check_range(source: torch.Tensor, low: Any, high: Any) -> None:
    if low == high and source.numel():
        low, high = source.min().item(), source.max().item()
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"range of [{low:g}, {high:g}] is not finite")
    if low > high:
        raise RuntimeError("max must be larger than min")


def conjugating(op: Op, call: Kernel) -> Kernel:
    """`call`, with the dispatcher's fallbacks for conjugate and negative views switched on.

    Its CPU kernel makes such views and relies on the dispatcher to resolve them. The fallbacks run above
    `__torch_dispatch__` and are then off for the op and everything that its kernel calls.
    """
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey

    def conjugating(*args: Any, **kwargs: Any) -> Any:
        with guard(keys.Conjugate, False), guard(keys.Negative, False):
            return tree_map(_resolved, call(*args, **kwargs))

    return conjugating


def by_qr(op: Op, call: Kernel) -> Kernel:
    """`linalg_lstsq`, whose only driver on CUDA is gels; the CPU's default is gelsy (get_default_lstsq_driver)."""
    compute = conjugating(op, call)

    def least_squares(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        return compute(*args, driver=driver or "gels", **kwargs)

    return least_squares


def without_driver(op: Op, call: Kernel) -> Kernel:
    """`_linalg_svd`: the CPU's kernel refuses the names of cuSOLVER's drivers, which `dtypes.svd` has checked."""
    compute = conjugating(op, call)

    def decompose(*args: Any, driver: str | None = None, **kwargs: Any) -> Any:
        return compute(*args, **kwargs)

    return decompose


_HALF = re.compile("Unsupported dtype Half|MKL FFT doesn't support tensors of type: Half")


def _in_words(function: Kernel) -> Kernel:
    """A Fourier transform that says that half precision is not simulated, instead of the CPU's errors."""

    @functools.wraps(function)
    def transform(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        try:
            return function(*args, **kwargs)
        except RuntimeError as raised:
            source = args[0] if args else kwargs.get("input")
            if source.__class__ is FakeCudaTensor and _HALF.match(str(raised)):
                raise error("half-precision transforms") from None
            raise

    return transform


CHANGES = [
    wrapped(f"torch.fft.{kind}{shape}", _in_words, "half precision is refused in a sentence")
    for shape in ("fft", "fft2", "fftn")
    for kind in ("", "i", "r", "ir", "h", "ih")
    if hasattr(torch.fft, f"{kind}{shape}")
]


def _resolved(value: Any) -> Any:
    return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value
