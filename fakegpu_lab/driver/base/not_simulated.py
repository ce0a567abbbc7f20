"""What is not simulated: one table, one error, one sentence each.

`TABLE` is the whole list; docs/not-simulated.md is made of it. A row refuses functions of ``torch._C``, names under
torch by itself; the op sheet's rows of refused ops and code that finds out later use `refuse` and `error`.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from fakegpu_lab.driver.base.changes import added, computed, replaced
from fakegpu_lab.hardware.errors import FakeGpuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.base.changes import Change


class NotSimulatedError(FakeGpuError, NotImplementedError):
    """The simulation does not have what was called, and says what to do instead."""


@dataclass(frozen=True)
class Row:
    """Something that is not simulated.

    Attributes
    ----------
    what
        The subject of the sentence "… is not simulated."
    instead
        A sentence: what to do, or why it is left out.
    functions, names
        What refuses by itself: functions of ``torch._C``, names of torch's modules.
    """

    what: str
    instead: str = ""
    functions: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The message of the error."""
        return f"{self.what} is not simulated.{f' {self.instead}' if self.instead else ''}"


_NO_COMPILER = "There is no CUDA compiler here: write the kernel in Triton or with numba.cuda."

TABLE: dict[str, Row] = {
    "graph checkpoints": Row(
        "Checkpointing the memory of a CUDA graph",
        "It is for torch.compile's graph trees; here, reduce-overhead captures plain CUDA graphs.",
        functions=(
            "_cuda_checkPoolLiveAllocations",
            "_cuda_setCheckpointPoolState",
            "_cuda_getCheckpointState",
            "_construct_CUDA_Tensor_From_Storage_And_Metadata",
            "_free_And_Remove_DeleterFn",
        ),
    ),
    "accelerator graphs": Row(
        "Capturing with torch.accelerator.Graph", "Use torch.cuda.CUDAGraph.", names=("torch.accelerator.Graph",)
    ),
    "conditional nodes": Row("A conditional node of a CUDA graph (torch.cuda.CUDAGraph.get_currently_capturing_graph)"),
    "raw graphs": Row(
        "A raw cudaGraph_t or cudaGraphExec_t, or a file of its nodes (debug_dump),",
        "The GPU is simulated; lab.record() shows what a replay runs.",
    ),
    "captured sparse tensors": Row("Capturing sparse tensors into a CUDA graph"),
    "captured peer copies": Row("Capturing copies between two GPUs into a CUDA graph"),
    "shared events": Row("Sharing CUDA events between processes", "Synchronize before you pass the tensor on."),
    "allocators": Row(
        "Another memory allocator (torch.cuda.memory.CUDAPluggableAllocator)",
        functions=(
            "_cuda_customAllocator",
            "_cuda_changeCurrentAllocator",
            "_cuda_getAllocator",
            "_cuda_cudaHostAllocator",
        ),
    ),
    "memory for others": Row(
        "Memory that another library takes from PyTorch's cache (torch.cuda.caching_allocator_alloc)",
        functions=("_cuda_cudaCachingAllocator_raw_alloc", "_cuda_cudaCachingAllocator_raw_delete"),
    ),
    "memory pools": Row(
        "A memory pool that other allocations may use when memory runs out, or whose segments are not split "
        "(torch.cuda.MemPool(use_on_oom=True, no_split=True)), or a pool for the allocations of one stream,",
        functions=("_cuda_beginAllocateToPool", "_cuda_beginAllocateCurrentStreamToPool"),
    ),
    "tuning": Row(
        "Tuning GEMMs (torch.cuda.tunable)",
        functions=(
            "_cuda_tunableop_enable",
            "_cuda_tunableop_tuning_enable",
            "_cuda_record_untuned_enable",
            "_cuda_tunableop_set_max_tuning_duration",
            "_cuda_tunableop_get_max_tuning_duration",
            "_cuda_tunableop_set_max_tuning_iterations",
            "_cuda_tunableop_get_max_tuning_iterations",
            "_cuda_tunableop_set_filename",
            "_cuda_tunableop_get_filename",
            "_cuda_tunableop_read_file",
            "_cuda_tunableop_write_file",
            "_cuda_tunableop_write_file_on_exit",
            "_cuda_tunableop_get_results",
            "_cuda_tunableop_get_validators",
            "_cuda_tunableop_set_rotating_buffer_size",
            "_cuda_tunableop_get_rotating_buffer_size",
            "_cuda_tunableop_set_numerical_check_tolerances",
            "_cuda_tunableop_set_cublaslt_requested_algo_count",
            "_cuda_tunableop_get_cublaslt_requested_algo_count",
        ),
    ),
    "GPUDirect Storage": Row(
        "GPUDirect Storage (torch.cuda.gds)",
        functions=(
            "_gds_register_buffer",
            "_gds_deregister_buffer",
            "_gds_register_handle",
            "_gds_deregister_handle",
            "_gds_load_storage",
            "_gds_save_storage",
        ),
    ),
    "NCCL alone": Row(
        "NCCL without torch.distributed (torch.cuda.nccl), but for the broadcast and reduce of nn.DataParallel,",
        "Use torch.distributed.",
        functions=(
            "_nccl_unique_id",
            "_nccl_init_rank",
            "_nccl_all_reduce",
            "_nccl_all_gather",
            "_nccl_reduce_scatter",
        ),
    ),
    "results of torch.cuda.comm": Row(
        "Writing what torch.cuda.comm returns into tensors of one's own (out=…)",
        "Copy what it returns.",
        functions=("_broadcast_out", "_scatter_out", "_gather_out"),
    ),
    "CUDA code": Row(
        "Compiling CUDA code (torch.cuda.jiterator, torch.cuda._compile_kernel)",
        _NO_COMPILER,
        functions=("_cuda_jiterator_compile_and_launch_kernel",),
        names=("torch.cuda._compile_kernel",),
    ),
    "green contexts": Row(
        "A green context (torch.cuda.green_contexts)",
        names=("torch.cuda.green_contexts._get_driver_version",),
    ),
    "reconfiguring": Row("Reconfiguring process groups (enable_reconfigure)"),
    "strided nested tensors": Row(
        "A nested tensor of the strided layout on a device",
        "Make a jagged one: torch.nested.nested_tensor(..., layout=torch.jagged).",
    ),
    "attention options": Row(
        "Fused attention with a sliding window, paged keys, ALiBi, scales of 8-bit operands or a bias for packed "
        "sequences, or fused attention that returns its dropout mask (return_debug_mask, _fill_mem_eff_dropout_mask_),"
    ),
    "quantized tensors": Row(
        "A quantized tensor on a device", "Quantized models run on the CPU; on a card, use int8 or float8 tensors."
    ),
    "products of another dtype": Row(
        "A product with another out_dtype (torch.mm(a, b, out_dtype=…))", "Convert the operands, or the result."
    ),
    "cuDNN by name": Row(
        "An operation by cuDNN's name (torch.cudnn_convolution, torch._cudnn_ctc_loss)",
        "torch.nn.functional.conv2d uses cuDNN; for a CTC loss, PyTorch's own kernels compute the same.",
    ),
    "sparse kernels": Row(
        "An operation on sparse tensors in half precision or of booleans", "Convert them to float32 first."
    ),
    "encoder fast path": Row(
        "The fast path of nn.TransformerEncoderLayer and nn.MultiheadAttention in eval mode",
        "Use the ordinary ops, which nn.TransformerEncoder chooses automatically. They compute the same, with one "
        "exception: if all keys of a row are masked, the fast path gives NaN.",
    ),
    "TorchScript files": Row(
        "Saving a TorchScript model whose tensors are on a device",
        "Move it to the CPU first, or save its state_dict; torch.jit.load(..., map_location='cuda') works.",
    ),
    "4-bit weights": Row("A product with weights of 4 bits (torch._weight_int4pack_mm)"),
    "C++ Gloo": Row(
        "torch.distributed.ProcessGroupGloo, called directly with tensors of a device,",
        "Use torch.distributed.init_process_group('gloo').",
    ),
    "completion hooks": Row(
        "A hook that runs whenever an operation of a process group finishes (_register_on_completion_hook)",
        "Call get_future().then(...) of an operation.",
    ),
    "sparse collectives": Row("An all-reduce of sparse tensors", "Reduce dense ones: tensor.to_dense()."),
    "collectives in flight": Row(
        "Giving a compiled graph what a collective is still writing (allow_inflight_collective_as_graph_input_ctx)",
        "Wait for the collective first.",
    ),
    "wrapped tensors": Row(
        "A collective on tensors of a subclass, or one that a dispatch mode (CommDebugMode) should record,",
        "Use functional collectives or those of DTensor: a dispatch mode records them.",
    ),
    "default tensor types": Row(
        "A CUDA type as default type (torch.set_default_tensor_type)",
        "Use torch.set_default_device('cuda') and torch.set_default_dtype.",
    ),
    "semi-structured sparsity": Row(
        "Sparsity of two in four (torch.sparse.to_sparse_semi_structured)",
        "Keep the tensor dense, with zeros in it: the values are the same.",
    ),
    "CUDA's alone": Row("An operator that CUDA has and the CPU lacks"),
    "half-precision transforms": Row(
        "A Fourier transform in half precision", "Transform the tensor in float32: torch.fft.fft(x.float())."
    ),
    "integer divisions by zero": Row(
        "A division of integers by zero",
        "Check the divisor first: a real card does not stop, and returns a meaningless number.",
    ),
    "complex32": Row("An operation on complex32", "Use complex64."),
    "threads of autograd": Row(
        "A thread of autograd for each GPU",
        "Backward, with its hooks, runs in the thread that calls it, as after "
        "torch.autograd.set_multithreading_enabled(False).",
    ),
    "exact types": Row(
        "The exact type of a tensor on a device",
        "It is a subclass that prints as torch.Tensor. Write `isinstance(x, torch.Tensor)`: `type(x) is torch.Tensor` "
        "and `type(x) == torch.Tensor` are false here.",
    ),
    "memory timelines": Row(
        "export_memory_timeline, which PyTorch has deprecated,",
        "Use torch.cuda.memory._record_memory_history() and _dump_snapshot(), or fakegpu_lab.record().",
    ),
    "memory of cycles": Row(
        "Where the memory in a reference cycle was allocated (torch.utils.viz._cycles)", "The cycle itself is shown."
    ),
    "pinned addresses": Row(
        "Which address PyTorch's cache of pinned memory gives out",
        "The statistics count the cache's blocks and their times. A tensor's data_ptr() is that of ordinary memory.",
    ),
    "sparse tensor types": Row(
        "A legacy sparse tensor type (torch.cuda.sparse.FloatTensor)",
        "Use torch.sparse_coo_tensor(..., device='cuda').",
    ),
}


def error(key: str) -> NotSimulatedError:
    """The error of a row of `TABLE`."""
    return NotSimulatedError(TABLE[key].sentence)


def refuse(key: str) -> Callable[..., NoReturn]:
    """A function that raises the error of a row."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise error(key)

    return refused


def _named() -> list[Change]:
    """The rows of names; those that this torch does not have stay away."""
    rows = []
    for key, row in TABLE.items():
        for name in row.names:
            module, _, attribute = name.rpartition(".")
            original = getattr(importlib.import_module(module), attribute, None)
            if isinstance(original, type):
                rows.append(replaced(f"{name}.__new__", staticmethod(refuse(key)), "refused"))
            elif original is not None:
                rows.append(replaced(name, refuse(key), "refused"))
    return rows


CHANGES = [
    *(added(f"torch._C.{name}", refuse(key), "refused") for key, row in TABLE.items() for name in row.functions),
    computed(_named, "refused"),
]
