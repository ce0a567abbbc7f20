"""torch.backends.cuda and torch.backends.cudnn: adds the switches that a CPU build lacks, and restores all of them.

Most switches exist in C++ in every build (aten/src/ATen/Context.cpp): they can be set and read, and do not change
results, which are computed on the CPU. Their values are noted, and restored when the machine is disabled.

Also the modes that make ops warn or fail: `torch.cuda.set_sync_debug_mode`, `torch.use_deterministic_algorithms`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.cuda.green_contexts
from torch.backends import ContextProp, cuda

from fakegpu_lab.driver.base import current, sync_debug
from fakegpu_lab.driver.base.changes import added, begun, in_cuda_builds, replaced
from fakegpu_lab.driver.dispatch import dispatcher
from fakegpu_lab.driver.placement import determinism

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
_HOST_PRECISIONS = (("mkldnn", "all"), ("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"))
_PRECISIONS = (
    *(("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("cuda", "conv"), ("cuda", "rnn")),
    *_HOST_PRECISIONS,
)


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


class AllocatorState:
    """``_cuda_CUDAAllocator_AllocatorState``, a checkpoint of a graph's memory; inductor imports the name."""


_cudnn: dict[str, Any] = {"benchmark_limit": 10, "empty_cache": True}


def set_matmul_precision(precision: str) -> None:
    """``torch.set_float32_matmul_precision``: "medium" is TF32 on CUDA, but bfloat16 on a CPU that has it."""
    _set_matmul_precision(precision)
    _compute_in_full()


def _compute_in_full() -> None:
    """Let the host, which computes the devices' values, round no products."""
    for backend_and_op in _HOST_PRECISIONS:
        with contextlib.suppress(RuntimeError, AttributeError):
            _C._set_fp32_precision_setter(*backend_and_op, "ieee")


_set_matmul_precision = _C._set_float32_matmul_precision


_CUFFT = {
    "_cufft_get_plan_cache_size": plan_cache_size,
    "_cufft_get_plan_cache_max_size": plan_cache_max_size,
    "_cufft_set_plan_cache_max_size": set_plan_cache_max_size,
    "_cufft_clear_plan_cache": plan_cache_size,
}


def _begin() -> Callable[[], None]:
    restore = _restorer()
    _compute_in_full()
    _plans.clear()
    _cudnn.update(benchmark_limit=10, empty_cache=True)
    _preferred.update(linalg=_C._LinalgBackend.Default, blas=_C._BlasBackend.Cublas)
    return restore


_PROPERTY = cast("Any", cuda.cuFFTPlanCacheAttrContextProp)
_GREEN = "torch.cuda.green_contexts"
_BOUND = "torch.backends.cuda bound the functions when it was imported"


_set_deterministic = torch._C._set_deterministic_algorithms


def set_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """``torch._C._set_deterministic_algorithms``; ops check the mode only while it is on, so their plans change."""
    _set_deterministic(mode, warn_only=warn_only)
    dispatcher.forget()


def _no_modes() -> None:
    sync_debug.reset()
    determinism.reset()


FUNCTIONS: dict[str, Any] = {
    "_cuda_CUDAAllocator_AllocatorState": AllocatorState,
    "_cuda_tunableop_is_enabled": lambda: False,
    "_cuda_tunableop_tuning_is_enabled": lambda: False,
    "_cuda_record_untuned_is_enabled": lambda: False,
    "_cuda_getCurrentBlasHandle": lambda: 0x5700_0000_0000,
    "_cuda_getCurrentSolverHandle": lambda: 0x5700_0000_1000,
    "_cuda_getHipblasltVersion": lambda: "",
    "_cuda_get_cudnn_benchmark_limit": lambda: _cudnn["benchmark_limit"],
    "_cuda_set_cudnn_benchmark_limit": lambda limit: _cudnn.update(benchmark_limit=limit),
    "_cuda_get_conv_benchmark_empty_cache": lambda: _cudnn["empty_cache"],
    "_cudnn_set_conv_benchmark_empty_cache": lambda enable: _cudnn.update(empty_cache=enable),
    "_rocm_is_backward_pass": lambda: False,
    "_get_linalg_preferred_backend": lambda: _preferred["linalg"],
    "_set_linalg_preferred_backend": set_linalg,
    "_get_blas_preferred_backend": lambda: _preferred["blas"],
    "_set_blas_preferred_backend": set_blas,
    "_is_flash_attention_available": lambda: True,
    "_set_float32_matmul_precision": set_matmul_precision,
    "_cuda_set_sync_debug_mode": sync_debug.set_mode,
    "_cuda_get_sync_debug_mode": lambda: sync_debug.mode,
    "_set_deterministic_algorithms": set_deterministic_algorithms,
}


CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    replaced(f"{_GREEN}._is_locality_software_supported", lambda: False, "not simulated", since="2.15"),
    replaced(f"{_GREEN}.SUPPORTED", False, "not simulated", until="2.15"),
    added(
        "torch.backends.cudnn.__class__.benchmark_limit",
        ContextProp(  # type: ignore[no-untyped-call]
            FUNCTIONS["_cuda_get_cudnn_benchmark_limit"], FUNCTIONS["_cuda_set_cudnn_benchmark_limit"]
        ),
        "CPU builds lack it",
    ),
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
    begun(_no_modes, "nothing was warned of yet; the synchronization's mode is off"),
]
