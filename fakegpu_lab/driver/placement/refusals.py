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
