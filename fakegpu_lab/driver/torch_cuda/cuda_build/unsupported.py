"""CUDA functions that the simulation does not have: each raises an error of one sentence.

Installed first: a module that implements one of these names replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from torch.backends import ContextProp

from fakegpu_lab.driver.base.changes import added, begun, in_cuda_builds, replaced

if TYPE_CHECKING:
    from collections.abc import Callable


def refuse(what: str) -> Callable[..., NoReturn]:
    """A function that raises an error: `what` is not part of the simulation."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"{what} is not part of the simulation.")

    return refused


_GRAPHS = "Capturing CUDA graphs"
PLUGGABLE = "Another memory allocator (torch.cuda.memory.CUDAPluggableAllocator)"
_TUNABLE = "Tuning GEMMs (torch.cuda.tunable)"
_GDS = "GPUDirect Storage (torch.cuda.gds)"
_NCCL = "Joining processes by NCCL without torch.distributed (torch.cuda.nccl.init_rank)"
_GREEN = "A green context (torch.cuda.green_contexts)"

_REFUSED = {
    _GRAPHS: (
        "_cuda_checkPoolLiveAllocations", "_cuda_setCheckpointPoolState", "_cuda_getCheckpointState",
        "_construct_CUDA_Tensor_From_Storage_And_Metadata", "_free_And_Remove_DeleterFn",
    ),
    PLUGGABLE: (
        "_cuda_customAllocator", "_cuda_changeCurrentAllocator", "_cuda_getAllocator", "_cuda_cudaHostAllocator",
    ),
    _TUNABLE: (
        "_cuda_tunableop_enable", "_cuda_tunableop_tuning_enable", "_cuda_record_untuned_enable",
        "_cuda_tunableop_set_max_tuning_duration", "_cuda_tunableop_get_max_tuning_duration",
        "_cuda_tunableop_set_max_tuning_iterations", "_cuda_tunableop_get_max_tuning_iterations",
        "_cuda_tunableop_set_filename", "_cuda_tunableop_get_filename", "_cuda_tunableop_read_file",
        "_cuda_tunableop_write_file", "_cuda_tunableop_write_file_on_exit", "_cuda_tunableop_get_results",
        "_cuda_tunableop_get_validators", "_cuda_tunableop_set_rotating_buffer_size",
        "_cuda_tunableop_get_rotating_buffer_size", "_cuda_tunableop_set_numerical_check_tolerances",
        "_cuda_tunableop_set_cublaslt_requested_algo_count", "_cuda_tunableop_get_cublaslt_requested_algo_count",
    ),
    _GDS: (
        "_gds_register_buffer", "_gds_deregister_buffer", "_gds_register_handle", "_gds_deregister_handle",
        "_gds_load_storage", "_gds_save_storage",
    ),
    _NCCL: (
        "_nccl_unique_id", "_nccl_init_rank",
    ),
    "Compiling CUDA code (torch.cuda.jiterator)": ("_cuda_jiterator_compile_and_launch_kernel",),
}  # fmt: skip


class AllocatorState:
    """``_cuda_CUDAAllocator_AllocatorState``, a checkpoint of a graph's memory; inductor imports the name."""


_cudnn: dict[str, Any] = {"benchmark_limit": 10, "empty_cache": True}


FUNCTIONS: dict[str, Any] = {name: refuse(what) for what, names in _REFUSED.items() for name in names} | {
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
}


_GREEN_CONTEXTS = "torch.cuda.green_contexts"
CHANGES = [
    *in_cuda_builds(FUNCTIONS),
    begun(lambda: _cudnn.update(benchmark_limit=10, empty_cache=True), "cuDNN's defaults"),
    replaced("torch.accelerator.Graph.__new__", staticmethod(refuse(_GRAPHS)), "refused", since="2.13"),
    replaced("torch.cuda._compile_kernel", refuse("Compiling CUDA code (torch.cuda._compile_kernel)"), "refused"),
    replaced(f"{_GREEN_CONTEXTS}._get_driver_version", refuse(_GREEN), "refused", since="2.15"),
    replaced(f"{_GREEN_CONTEXTS}._is_locality_software_supported", lambda: False, "refused", since="2.15"),
    replaced(f"{_GREEN_CONTEXTS}.SUPPORTED", False, "refused", until="2.15"),
    added(
        "torch.backends.cudnn.__class__.benchmark_limit",
        ContextProp(  # type: ignore[no-untyped-call]
            FUNCTIONS["_cuda_get_cudnn_benchmark_limit"], FUNCTIONS["_cuda_set_cudnn_benchmark_limit"]
        ),
        "CPU builds lack it",
    ),
]
