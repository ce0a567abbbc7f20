"""What CUDA's kernels refuse although the CPU's take it: dtypes, ops, products on older cards; errors in CUDA's words.

`with_dtype_checks` refuses what only the CPU could compute; `as_cuda` rewords errors of the CPU's kernels. All of it
was compared with a CUDA build of torch 2.14, message by message (tests/driver/placement_cases.txt). `plan` refuses ops
that have no CUDA kernel.
"""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from fakegpu_lab.driver.base import cuda_messages, not_simulated
from fakegpu_lab.driver.base.half_precision import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op, Plan


_SCALAR_TYPES = {
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool", torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float",
    torch.float64: "Double", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip
_FLOAT8 = {
    dtype: name[0].upper() + name[1:]
    for name, dtype in vars(torch).items()
    if isinstance(dtype, torch.dtype) and name.startswith("float8_")
}
_SCALAR_TYPES |= _FLOAT8
_INTEGERS = frozenset((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool))
_NOT_MULTIPLIED = _INTEGERS | frozenset(_FLOAT8)

_CPP_NAMES = {
    torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.float32: "float", torch.float64: "double",
    torch.complex64: "c10::complex<float>", torch.complex128: "c10::complex<double>", torch.int64: "long int",
    torch.int32: "int", torch.int16: "short int", torch.int8: "signed char", torch.uint8: "unsigned char",
    torch.bool: "bool",
}  # fmt: skip


def cpp_name(dtype: torch.dtype) -> str:
    """A dtype as C++ prints a `TypeMeta`: ``c10::Half``."""
    return _CPP_NAMES.get(dtype, str(dtype))


def scalar_type(dtype: torch.dtype) -> str:
    """A dtype as C++ prints a `ScalarType`: ``Half``."""
    return _SCALAR_TYPES.get(dtype) or str(dtype).removeprefix("torch.").replace("uint", "UInt")


def with_dtype_checks(op: Op, plan: Plan) -> Plan:
    """`plan`, after a check that refuses what only the CPU could compute; unchanged for most ops."""
    return _checked(op, plan, op.row.checks) if op.row.checks is not None else plan


def by_shape(op: Op) -> bool:
    """Whether the op's plan keeps what depends on the shapes and dtypes alone, once `refusing_integers` let it pass."""
    two = op.tensors == (0, 1) or op.row.runs is not None  # `linear` may have a bias
    return op.row.cublas == "gemm" and two and not op.written and not op.schema.overload_name


def refuse_integers(op: Op, dtype: torch.dtype) -> None:
    """Raise the error of an op that on CUDA has no kernel for integers, if `dtype` is one."""
    if dtype in _NOT_MULTIPLIED:
        raise NotImplementedError(f"\"{op.row.no_integers}\" not implemented for '{_SCALAR_TYPES[dtype]}'")


def refusing_integers(op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, the CPU's kernel, with the error of CUDA's before anything is launched or written."""
    functional = op.func.overloadpacket.default if op.outs else call

    @functools.wraps(call)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        if args[0].dtype not in _NOT_MULTIPLIED:
            return call(*args, **kwargs)
        with suppress(NotImplementedError):  # the CPU's word for it
            inputs = {name: value for name, value in kwargs.items() if name not in op.outs}
            functional(*args, **inputs)  # errors about shapes come first
        return refuse_integers(op, args[0].dtype)

    return refusing


def _checked(op: Op, plan: Plan, check: Callable[..., None]) -> Plan:
    def checked(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        check(op, *args, **kwargs)
        return plan(args, kwargs)

    return checked


def scatter(
    op: Op, target: torch.Tensor, dim: int, index: torch.Tensor, source: Any, reduce: str | None = None, **rest: Any
) -> None:
    """Scatters multiply no complex numbers and no booleans (cuda/ScatterGatherKernel.cu)."""
    dtype = target.dtype
    if reduce in ("multiply", "prod") and (dtype.is_complex or dtype is torch.bool) and index.numel():
        value = op.schema.overload_name.startswith("value")
        kernel = "cuda_scatter_fill_base_kernel_reduce_multiply" if value else "cuda_scatter_gather_base_kernel_func"
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{_SCALAR_TYPES[dtype]}'")


def convolution(
    op: Op, source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any, **options: Any
) -> None:
    """Convolution.cpp, check_input_same_type_as_parameters; cudnn/Descriptors.cpp."""
    dtype = source.dtype
    for what, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype is not dtype and tensor.is_cuda and source.is_cuda:
            raise RuntimeError(f"Input type ({source.type()}) and {what} type ({tensor.type()}) should be the same")
    if dtype in _INTEGERS and source.is_cuda:
        raise RuntimeError(f"getCudnnDataTypeFromScalarType() not supported for {_SCALAR_TYPES[dtype]}")


def layer_norm(
    op: Op,
    source: torch.Tensor,
    shape: Any,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None = None,
    *rest: Any,
    **options: Any,
) -> None:
    """cuda/layer_norm_kernel.cu: `gamma`, and then `beta`, are read as the input's type."""
    _check_same_type(source, weight)
    _check_same_type(source, bias)


def group_norm(op: Op, source: torch.Tensor, weight: torch.Tensor | None, *rest: Any, **options: Any) -> None:
    """cuda/group_norm_kernel.cu: `gamma` is read as the input's type."""
    _check_same_type(source, weight)


def _check_same_type(source: torch.Tensor, weight: torch.Tensor | None) -> None:
    if weight is not None and weight.dtype is not source.dtype and weight.is_cuda and source.is_cuda:
        raise RuntimeError(
            f"expected scalar type {_SCALAR_TYPES[source.dtype]} but found {_SCALAR_TYPES[weight.dtype]}"
        )


def batch_norm(op: Op, source: torch.Tensor, weight: torch.Tensor | None, *rest: Any, **options: Any) -> None:
    """cudnn/BatchNorm.cpp, checkAllSameType; half precision goes with float32 parameters."""
    if weight is None or source.dim() < 3 or not (source.is_cuda and weight.is_cuda):
        return
    if weight.dtype is not (torch.float32 if source.dtype in HALVES else source.dtype) and source.dtype not in HALVES:
        raise RuntimeError(
            "Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'weight'; but "
            f"type {source.type()} does not equal {weight.type()} (while checking arguments for cudnn_batch_norm)"
        )


def batch_norm_backward(
    op: Op,
    grad: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    *rest: Any,
) -> None:
    """cuda/Normalization.cu, `batch_norm_backward_cuda`: the fused kernel reads weight and statistics as one type.

    That is the input's type if the weight has it, else the type in which the kernel accumulates. Inputs whose channels
    are the innermost dimension go to other kernels, which take any types. Simplified: also where cuDNN would compute.
    """
    mask = rest[-1]
    if source.dtype not in HALVES or not source.is_cuda or not mask[0] or _innermost_channels(source):
        return
    named = {"weight": weight, "running_mean": running_mean, "running_var": running_var}
    given = {name: tensor for name, tensor in named.items() if tensor is not None}
    mixed = any(tensor.dtype is not source.dtype for tensor in list(given.values())[:1])
    expected = torch.float32 if mixed else source.dtype
    for name, tensor in given.items():
        if tensor.dtype is not expected:
            types = _SCALAR_TYPES[expected], _SCALAR_TYPES[tensor.dtype]
            raise RuntimeError(f"Expected {name} to have type {types[0]} but got {types[1]}")


def _innermost_channels(source: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    if source.dim() in formats and source.is_contiguous(memory_format=formats[source.dim()]):
        return True
    return source.is_contiguous() and source.stride(1) == 1


_NOT_IMPLEMENTED = re.compile(r'^"(\w+)" not implemented for')

# Names in the CPU's dispatch macros, and their names on CUDA, where these do not just end in _cuda instead of _cpu.
_CUDA_KERNELS = {
    "addmm_impl_cpu_": "addmm_cuda", "softmax_lastdim_kernel_impl": "host_softmax",
    "log_softmax_lastdim_kernel_impl": "host_softmax", "softmax_kernel_impl": "host_softmax",
    "log_softmax_kernel_impl": "host_softmax", "GeluKernelImpl": "GeluCUDAKernelImpl",
    "batch_norm": "batchnorm_forward", "max_all": "max_all_cuda", "min_all": "min_all_cuda",
    "trigamma": "trigamma_cuda", "digamma": "digamma_cuda", "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "adaptive_avg_pool2d": "adaptive_avg_pool2d_cuda", "adaptive_max_pool2d": "adaptive_max_pool2d_cuda",
    "upsample_bilinear2d_channels_last": "upsample_bilinear2d_out_frame",
    "upsample_nearest2d_channels_last": "upsample_nearest2d_out_frame",
    "compute_indices_weights_cubic": "upsample_bicubic2d_out_frame",
    "nll_loss_out_frame": "nll_loss_forward_reduce_cuda_kernel_2d",
    "binary_cross_entropy": "binary_cross_entropy_out_cuda", "log_sigmoid_cpu": "log_sigmoid_forward_cuda",
    "lt_cpu": "compare_cuda", "gt_cpu": "compare_cuda", "le_cpu": "compare_cuda", "ge_cpu": "compare_cuda",
    "im2col_out_cpu": "im2col_out_cuda", "replication_pad1d": "replication_pad1d_cuda",
    "rms_norm": "LayerNormKernelImpl", "linalg_svd_cpu": "svd_cuda_gesvdjBatched", "cholesky_cpu": "cholesky_cusolver",
    "lu_cpu": "lu_factor_cusolver", "add_stub": "ufunc_add_CUDA",
}  # fmt: skip


def as_cuda(error: Exception) -> Exception:
    """`error` in the words of the CUDA kernel; unchanged if both use the same words."""
    if not isinstance(error, RuntimeError):
        return error
    text = str(error)
    if "not implemented for 'ComplexHalf'" in text:
        return not_simulated.error("complex32")
    if text.startswith("Could not run 'aten::") and "with arguments from the 'CPU' backend" in text:
        return not_simulated.error("CUDA's alone")
    if "DefaultCPUAllocator: can't allocate memory" in text:
        return cuda_messages.no_host_memory()
    reworded = _NOT_IMPLEMENTED.sub(lambda match: f'"{_cuda_kernel(match[1])}" not implemented for', text)
    reworded = reworded.replace(
        "expected m1 and m2 to have the same dtype", "expected mat1 and mat2 to have the same dtype"
    )
    if "while checking arguments for" in reworded:  # TensorUtils.cpp names the type of a tensor
        reworded = re.sub(r"\btorch\.(\w+Tensor)\b", r"torch.cuda.\1", reworded)
        reworded = re.sub(r"\bCPU(\w+Type)\b", r"CUDA\1", reworded)
    return error if reworded == text else type(error)(reworded)


def _cuda_kernel(name: str) -> str:
    return _CUDA_KERNELS.get(name) or re.sub(r"(_vml)?_cpu$", "_cuda", name)


_CPU_LIBRARIES = frozenset(("_quantized", "mkl", "mkldnn", "onednn", "quantized", "sparse"))
"""Namespaces of torch's own operators for CPUs."""
_HOST_KEYS = ("QuantizedCPU", "CPU", "MkldnnCPU", "SparseCsrCPU")


def plan(op: Op) -> Plan | None:
    """A plan that raises torch's error if CUDA does not have the op; else None."""
    name = op.func.name()
    there = [key for key in _HOST_KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)]
    backend = op.row.no_kernel
    if op.func.namespace in _CPU_LIBRARIES and there:
        backend = there[0].removesuffix("CPU") + "CUDA"
    if not backend:
        return None
    text = (
        f"Could not run '{name}' with arguments from the '{backend}' backend. This could be because the operator "
        "doesn't exist for this backend, or was omitted during the selective/custom build process (if using custom "
        "build). If you are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for "
        f"possible resolutions. '{name}' is only available for these backends: [{', '.join((*there, 'Meta'))}]."
    )

    def refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
        raise NotImplementedError(text)

    return refused


def avg_pool2d(op: Op, source: torch.Tensor, *rest: Any, **options: Any) -> None:
    """cuda/AveragePool2d.cu, avg_pool2d_out_cuda: the kernel counts its results in 32 bits.

    Raises
    ------
    RuntimeError
        There would be more results.
    """
    if source.numel() > 2**29:  # padding makes at most four times as many results
        result = torch.ops.aten.avg_pool2d(torch.empty(source.shape, device="meta"), *rest, **options)
        if result.numel() > torch.iinfo(torch.int32).max:
            raise RuntimeError("integer out of range")


def int_mm(op: Op, self: torch.Tensor, mat2: torch.Tensor, *rest: Any, **options: Any) -> None:
    """cuda/Blas.cpp, _int_mm_out_cuda: cuBLASLt's kernels for int8 take no small or odd sizes.

    Raises
    ------
    RuntimeError
        The sizes are others.
    """
    for name, tensor in (("self", self), ("mat2", mat2)):
        if tensor.dim() != 2:
            raise RuntimeError(f"Expected {name} to be of dimension 2 but got {tensor.dim()}")
    (m, k), (rows, n) = self.shape, mat2.shape
    if m <= 16:
        raise RuntimeError(f"self.size(0) needs to be greater than 16, but got {m}")
    eights = "needs to be greater than 0 and a multiple of 8, but got"
    if not k or k % 8:
        raise RuntimeError(f"self.size(1) {eights} {k}")
    if k != rows:
        raise RuntimeError(f"self.size(1) needs to match mat2.size(0) but got {k} and {rows}")
    if not n or n % 8:
        raise RuntimeError(f"mat2.size(1) {eights} {n}")


def lstsq(op: Op, *args: Any, driver: str | None = None, **options: Any) -> None:
    """BatchLinearAlgebra.cpp, get_default_lstsq_driver.

    Raises
    ------
    RuntimeError
        The driver is one of LAPACK's that cuSOLVER does not have.
    """
    if driver is not None and driver.lower() in ("gelsy", "gelsd", "gelss"):
        raise RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA")


def svd(op: Op, *args: Any, driver: str | None = None, **options: Any) -> None:
    """cuda/linalg/BatchLinearAlgebraLib.cpp, svd_cusolver.

    Raises
    ------
    RuntimeError
        cuSOLVER has no such driver.
    """
    if driver not in (None, "gesvd", "gesvdj", "gesvda"):
        raise RuntimeError(
            f"torch.linalg.svd: unknown svd driver {driver} in svd_cusolver computation. "
            "Check doc at https://pytorch.org/docs/stable/generated/torch.linalg.svd.html"
        )


def scaled_mm(op: Op, mat1: torch.Tensor, *rest: Any, **options: Any) -> None:
    """cuda/ScaledBlas.cpp, _scaled_mm_allowed_device: float8 products need Ada, Hopper or later.

    Raises
    ------
    RuntimeError
        The GPU is older.
    """
    device = getattr(mat1, "_device", None)
    if device is not None and device.profile.compute_capability < (8, 9):
        raise RuntimeError(
            "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
        )
