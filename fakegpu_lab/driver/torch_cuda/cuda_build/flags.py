"""torch.backends.cuda and torch.backends.cudnn: adds the switches that a CPU build lacks, and restores all of them.

Most switches exist in C++ in every build (aten/src/ATen/Context.cpp): they can be set and read, and do not change
results, which are computed on the CPU. `install` notes their values, which are restored when the machine is disabled.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.backends import cuda

from fakegpu_lab.driver.base import current
from fakegpu_lab.driver.base.changes import added, begun, in_cuda_builds, replaced

if TYPE_CHECKING:
    from collections.abc import Callable


_C: Any = torch._C  # its stubs have half of these

# getter and setter of a switch, without arguments
_SWITCHES = (
    ("_get_cudnn_enabled", "_set_cudnn_enabled"),
    ("_get_cudnn_benchmark", "_set_cudnn_benchmark"),
    ("_get_cudnn_deterministic", "_set_cudnn_deterministic"),
    ("_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32"),
    ("_get_cublas_allow_tf32", "_set_cublas_allow_tf32"),
    ("_get_cublas_allow_fp16_accumulation", "_set_cublas_allow_fp16_accumulation"),
    ("_get_cublas_allow_fp16_reduced_precision_reduction", "_set_cublas_allow_fp16_reduced_precision_reduction"),
    ("_get_cublas_allow_bf16_reduced_precision_reduction", "_set_cublas_allow_bf16_reduced_precision_reduction"),
    ("_get_flash_sdp_enabled", "_set_sdp_use_flash"),
    ("_get_mem_efficient_sdp_enabled", "_set_sdp_use_mem_efficient"),
    ("_get_math_sdp_enabled", "_set_sdp_use_math"),
    ("_get_cudnn_sdp_enabled", "_set_sdp_use_cudnn"),
    ("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction"),
    ("_get_float32_matmul_precision", "_set_float32_matmul_precision"),
)
_PRECISIONS = (("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn"))


def _state() -> dict[Any, Any]:
    """The values of all switches, as arguments of their setters."""
    found: dict[Any, Any] = {}
    for getter, setter in _SWITCHES:
        if hasattr(_C, getter) and hasattr(_C, setter):
            with contextlib.suppress(
                RuntimeError
            ):  # torch refuses to read TF32 by its old name after it was set by its new
                value = getattr(_C, getter)()
                found[setter,] = value if isinstance(value, tuple) else (value,)
    for backend_and_op in _PRECISIONS:
        with contextlib.suppress(RuntimeError, AttributeError):
            precision = _C._get_fp32_precision_getter(*backend_and_op)
            found[("_set_fp32_precision_setter", *backend_and_op)] = (precision,)
    return found


def _restorer() -> Callable[[], None]:
    before = _state()

    def restore() -> None:
        now = _state()
        for (setter, *backend_and_op), value in before.items():
            if now.get((setter, *backend_and_op)) != value:
                getattr(_C, setter)(*backend_and_op, *value)

    return restore


_preferred: dict[str, Any] = {}


def set_linalg(backend: Any) -> None:
    """Remember the library for linear algebra; the CPU's computes."""
    _preferred["linalg"] = backend


def set_blas(backend: Any) -> None:
    """Remember the BLAS library; the workspace is always cuBLAS's."""
    _preferred["blas"] = _C._BlasBackend.Cublas if backend == _C._BlasBackend.Default else backend


_plans: dict[int, int] = {}
_MOST_PLANS = 4096  # CuFFTPlanCache.h, CUFFT_DEFAULT_CACHE_SIZE


def plan_cache_size(index: int) -> int:
    """The number of plans in cuFFT's cache: always 0, because FFTs are computed on the CPU."""
    current.device(index)
    return 0


def plan_cache_max_size(index: int) -> int:
    """The most plans that cuFFT's cache may hold."""
    return _plans.get(current.device(index).index, _MOST_PLANS)


def set_plan_cache_max_size(index: int, size: int) -> None:
    """Set the most plans that cuFFT's cache may hold."""
    device = current.device(index)
    if size < 0:
        raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {size}")
    _plans[device.index] = size


FUNCTIONS: dict[str, Any] = {
    "_get_linalg_preferred_backend": lambda: _preferred["linalg"],
    "_set_linalg_preferred_backend": set_linalg,
    "_get_blas_preferred_backend": lambda: _preferred["blas"],
    "_set_blas_preferred_backend": set_blas,
    "_is_flash_attention_available": lambda: True,
}

_CUFFT = {
    "_cufft_get_plan_cache_size": plan_cache_size,
    "_cufft_get_plan_cache_max_size": plan_cache_max_size,
    "_cufft_set_plan_cache_max_size": set_plan_cache_max_size,
    "_cufft_clear_plan_cache": plan_cache_size,
}


def _begin() -> Callable[[], None]:
    _plans.clear()
    _preferred.update(linalg=_C._LinalgBackend.Default, blas=_C._BlasBackend.Cublas)
    return _restorer()


_PROPERTY = cast("Any", cuda.cuFFTPlanCacheAttrContextProp)
_BOUND = "torch.backends.cuda bound the functions when it was imported"
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(_begin, "switches are as before when the machine is gone"),
    *(added(f"torch.{name}", function, "CPU builds refuse it") for name, function in _CUFFT.items()),
    replaced(  # the setter raises: it is read-only
        "torch.backends.cuda.cuFFTPlanCache.size",
        _PROPERTY(plan_cache_size, vars(cuda.cuFFTPlanCache)["size"].setter),
        _BOUND,
    ),
    replaced(
        "torch.backends.cuda.cuFFTPlanCache.max_size", _PROPERTY(plan_cache_max_size, set_plan_cache_max_size), _BOUND
    ),
]
