"""Refuses ops that have no CUDA kernel, and kernels that need a newer GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op, Plan


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
