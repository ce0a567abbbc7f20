"""Products that only CUDA computes: with a result of another dtype, with a GELU.

Products of half-precision matrices with a float32 result are `_mm_dtype_out_cuda`, `_addmm_dtype_out_cuda` and
`baddbmm_bmm_out_dtype_checks` in cuda/Blas.cpp. The parameters are those of the schemas. `addmm` and `baddbmm` look
alike, but check their arguments in different orders, which decides the error that a user sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import gelu

from fakegpu_lab.driver.base.half_precision import HALVES, into

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]


def with_tanh(op: Op, call: Kernel) -> Kernel:
    """`_addmm_activation`, whose GELU is the tanh approximation on CUDA (cuda/Blas.cpp, addmm_out_cuda_impl)."""

    def addmm_activation(*args: Any, use_gelu: bool = False, out: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if not use_gelu:
            return call(*args, **kwargs) if out is None else call(*args, **kwargs, out=out)
        result = gelu(torch.addmm(*args, **kwargs), approximate="tanh")
        return result if out is None else into(out, result)

    return addmm_activation


def mm(self: torch.Tensor, mat2: torch.Tensor, out_dtype: torch.dtype, out: torch.Tensor | None = None) -> Any:
    """``aten::mm.dtype``."""
    _check_matrices(("self", self), ("mat2", mat2))
    if self.dtype is not mat2.dtype:
        raise RuntimeError("input dtypes must be the same")
    _check_result(self.dtype, out_dtype, out)
    return torch.mm(self.to(out_dtype), mat2.to(out_dtype), out=out)


def addmm(
    self: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: torch.Tensor | None = None,
) -> Any:
    """``aten::addmm.dtype``."""
    _check_matrices(("mat1", mat1), ("mat2", mat2))
    if mat1.dtype is not mat2.dtype:
        one, other = (str(tensor.dtype) for tensor in (mat1, mat2))
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one} and {other}")
    _check_result(mat1.dtype, out_dtype, out)
    if self.dtype not in (out_dtype, mat1.dtype):
        raise RuntimeError("self dtype must match either out_dtype or mat1 dtype")
    product = torch.addmm(self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta=beta, alpha=alpha)
    return product if out is None else into(out, product)


def bmm(self: torch.Tensor, mat2: torch.Tensor, out_dtype: torch.dtype, out: torch.Tensor | None = None) -> Any:
    """``aten::bmm.dtype``."""
    _check_batches(self, mat2)
    _check_result(self.dtype, out_dtype, out)
    return torch.bmm(self.to(out_dtype), mat2.to(out_dtype), out=out)


def baddbmm(
    self: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: torch.Tensor | None = None,
) -> Any:
    """``aten::baddbmm.dtype``."""
    if self.dtype not in (out_dtype, batch1.dtype):
        raise RuntimeError("self dtype must match either out_dtype or batch1 dtype")
    _check_batches(batch1, batch2)
    _check_result(batch1.dtype, out_dtype, out)
    product = torch.baddbmm(self.to(out_dtype), batch1.to(out_dtype), batch2.to(out_dtype), beta=beta, alpha=alpha)
    return product if out is None else into(out, product)


def _check_matrices(left: tuple[str, torch.Tensor], right: tuple[str, torch.Tensor]) -> None:
    for name, tensor in (left, right):
        if tensor.dim() != 2:
            raise RuntimeError(f"{name} must be a matrix, got {tensor.dim()}-D tensor")
    (m, k), (rows, n) = left[1].shape, right[1].shape
    if k != rows:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {rows}x{n})")


def _check_batches(batch1: torch.Tensor, batch2: torch.Tensor) -> None:
    for name, tensor in (("batch1", batch1), ("batch2", batch2)):
        if tensor.dim() != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    if batch2.shape[0] != batch1.shape[0] or batch2.shape[1] != batch1.shape[2]:
        raise RuntimeError(
            "Expected size for first two dimensions of batch2 tensor to be: "
            f"[{batch1.shape[0]}, {batch1.shape[2]}] but got: [{batch2.shape[0]}, {batch2.shape[1]}]."
        )
    if batch1.dtype is not batch2.dtype:
        raise RuntimeError("batch1 and batch2 must have the same dtype")


def _check_result(dtype: torch.dtype, out_dtype: torch.dtype, out: torch.Tensor | None) -> None:
    if out_dtype is not dtype and not (out_dtype is torch.float32 and dtype in HALVES):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    if out is not None and out.dtype is not out_dtype:
        raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
