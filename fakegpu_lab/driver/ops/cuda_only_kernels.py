"""Kernels that only CUDA has: ops and dtypes that the CPU lacks, products with results of another dtype.

The list comes from torch's operator database (`dtypesIfCUDA` without `dtypes`). CUDA computes half precision in
`acc_type` (float32) and rounds once; this file does the same with the CPU's float32 kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import gelu
from torch.utils._pytree import tree_map

from fakegpu_lab.driver.base.half_precision import HALVES
from fakegpu_lab.driver.ops import int4_weights, sync_batch_norm
from fakegpu_lab.driver.ops.rounded_once import into, rounding_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from fakegpu_lab.driver.cost.op import Op

    Kernel = Callable[..., Any]

_FLOAT16 = (torch.float16,)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# By name, or name.overload: the dtypes that are widened, and the dtype in which the CPU computes them.
_WIDENED = {
    "_upsample_bicubic2d_aa": (HALVES, torch.float32),
    "_upsample_bicubic2d_aa_backward": (HALVES, torch.float32),
    "_upsample_bilinear2d_aa": (HALVES, torch.float32),
    "_upsample_bilinear2d_aa_backward": (HALVES, torch.float32),
    "avg_pool3d": (HALVES, torch.float32),
    "avg_pool3d_backward": (HALVES, torch.float32),
    "histc": (_INTEGERS, torch.float64),
    "multi_margin_loss": (HALVES, torch.float32),
    "multi_margin_loss_backward": (HALVES, torch.float32),
    "multilabel_margin_loss_backward": (HALVES, torch.float32),
    "multilabel_margin_loss_forward": (HALVES, torch.float32),
    "polygamma": (_FLOAT16, torch.float32),
    "polygamma_": (_FLOAT16, torch.float32),
    "round.decimals": (_FLOAT16, torch.float32),
    "round_.decimals": (_FLOAT16, torch.float32),
}

# Prefixes of ops whose CPU kernels make conjugate views and rely on the dispatcher to resolve them.
_MAKE_CONJUGATE_VIEWS = ("linalg_", "_linalg_", "cholesky_", "triangular_solve", "ormqr", "geqrf", "lu_")


def kernel(op: Op, call: Kernel) -> Kernel:
    """The function that computes `op` in place of `call`; `call` itself for most ops."""
    overload = op.schema.overload_name
    if overload.startswith("dtype") and op.name in _PRODUCTS:
        return _PRODUCTS[op.name]
    if op.name in _CUDA_ONLY and overload in ("", "Tensor"):
        return _CUDA_ONLY[op.name]
    if op.name == "_addmm_activation":
        return _with_tanh(call)
    if op.name == "nansum":
        return _nansum(call)
    if op.name == "new_empty_strided":
        return _without_layout(call)
    if op.name.startswith(_MAKE_CONJUGATE_VIEWS):
        return _conjugating(call)
    name = op.name if overload in ("", "out") else f"{op.name}.{overload.removesuffix('_out')}"
    widened = _WIDENED.get(name)
    if widened is None:
        return call
    return rounding_once(call, *widened, position=op.tensors[0], written=op.written)


def _conjugating(call: Kernel) -> Kernel:
    """`call`, with the dispatcher's fallbacks for conjugate and negative views switched on.

    They run above `__torch_dispatch__` and are then off for the op and everything that its kernel calls.
    """
    guard, keys = torch._C._SetExcludeDispatchKeyGuard, torch._C.DispatchKey

    def conjugating(*args: Any, **kwargs: Any) -> Any:
        with guard(keys.Conjugate, False), guard(keys.Negative, False):
            return tree_map(_resolved, call(*args, **kwargs))

    return conjugating


def _resolved(value: Any) -> Any:
    return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value


def _without_layout(call: Kernel) -> Kernel:
    """`new_empty_strided` of a strided gradient, called with the layout of its compressed sparse leaf.

    accumulate_grad.h takes such a gradient as it is, but does not see that the leaf is compressed.
    """

    def new_empty_strided(*args: Any, layout: torch.layout | None = None, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return new_empty_strided


def _nansum(call: Kernel) -> Kernel:
    """`nansum` that also takes complex numbers (cuda/ReduceSumProdKernel.cu, nansum_kernel_cuda)."""

    def nansum(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not self.is_complex():
            return call(self, *args, **kwargs)
        numbers = torch.where(self.isnan(), 0, self)
        return torch.sum(numbers, *(args or (None,)), **kwargs)

    return nansum


def _with_tanh(call: Kernel) -> Kernel:
    """`_addmm_activation`, whose GELU is the tanh approximation on CUDA (cuda/Blas.cpp, addmm_out_cuda_impl)."""

    def addmm_activation(*args: Any, use_gelu: bool = False, out: torch.Tensor | None = None, **kwargs: Any) -> Any:
        if not use_gelu:
            return call(*args, **kwargs) if out is None else call(*args, **kwargs, out=out)
        result = gelu(torch.addmm(*args, **kwargs), approximate="tanh")
        return result if out is None else into(out, result)

    return addmm_activation


def _grid_sampler(source: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    """`cudnn_grid_sampler` (cudnn/GridSampler.cpp): bilinear, zeros outside, corners aligned."""
    sample = torch.ops.aten.grid_sampler_3d if source.dim() == 5 else torch.ops.aten.grid_sampler_2d
    result: torch.Tensor = sample(source, grid, 0, 0, True)  # with the checks of check_grid_sampler_common
    _check_cudnn_samples("forward", source, grid)
    return result


def _grid_sampler_backward(source: torch.Tensor, grid: torch.Tensor, grad: torch.Tensor) -> Any:
    """`cudnn_grid_sampler_backward`."""
    _check_cudnn_samples("backward", source, grid)
    return torch.ops.aten.grid_sampler_2d_backward(grad, source, grid, 0, 0, True, [True, True])


def _ctc_loss(
    log_probs: torch.Tensor, targets: torch.Tensor, *lengths_and_blank: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """`_cudnn_ctc_loss` (cudnn/LossCTC.cpp): the losses, and at once the gradients of their sum."""
    if log_probs.is_meta:
        return log_probs.new_empty(log_probs.shape[1]), torch.empty_like(log_probs)
    *lengths, blank, _, zero_infinity = lengths_and_blank
    inputs, labels = (one.tolist() if isinstance(one, torch.Tensor) else one for one in lengths)
    aten, long = torch.ops.aten, targets.long()
    losses, alpha = aten._ctc_loss(log_probs, long, inputs, labels, blank, zero_infinity)
    ones = torch.ones_like(losses)
    return losses, aten._ctc_loss_backward(
        ones, log_probs, long, inputs, labels, losses, alpha, blank, zero_infinity
    )  # fmt: skip


def _check_cudnn_samples(direction: str, source: torch.Tensor, grid: torch.Tensor) -> None:
    """cond_cudnn_grid_sampler; its condition on 32-bit indices is left out."""
    dtypes = (torch.float16, torch.float32, torch.float64)
    acceptable = all(tensor.dtype in dtypes and tensor.numel() for tensor in (source, grid))
    if not (torch._C._get_cudnn_enabled() and acceptable and source.dim() == 4 and source.shape[1] <= 1024):
        raise RuntimeError(f"Invalid arguments to cudnn_grid_sampler_{direction}")


# Products of half-precision matrices with a float32 result: _mm_dtype_out_cuda, _addmm_dtype_out_cuda and
# baddbmm_bmm_out_dtype_checks in cuda/Blas.cpp. The parameters are those of the schemas. `_addmm` and `_baddbmm` look
# alike, but check their arguments in different orders, which decides the error that a user sees.


def _mm(self: torch.Tensor, mat2: torch.Tensor, out_dtype: torch.dtype, out: torch.Tensor | None = None) -> Any:
    _check_matrices(("self", self), ("mat2", mat2))
    if self.dtype is not mat2.dtype:
        raise RuntimeError("input dtypes must be the same")
    _check_result(self.dtype, out_dtype, out)
    return torch.mm(self.to(out_dtype), mat2.to(out_dtype), out=out)


def _addmm(
    self: torch.Tensor,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: torch.Tensor | None = None,
) -> Any:
    _check_matrices(("mat1", mat1), ("mat2", mat2))
    if mat1.dtype is not mat2.dtype:
        one, other = (str(tensor.dtype) for tensor in (mat1, mat2))
        raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one} and {other}")
    _check_result(mat1.dtype, out_dtype, out)
    if self.dtype not in (out_dtype, mat1.dtype):
        raise RuntimeError("self dtype must match either out_dtype or mat1 dtype")
    product = torch.addmm(self.to(out_dtype), mat1.to(out_dtype), mat2.to(out_dtype), beta=beta, alpha=alpha)
    return product if out is None else into(out, product)


def _bmm(self: torch.Tensor, mat2: torch.Tensor, out_dtype: torch.dtype, out: torch.Tensor | None = None) -> Any:
    _check_batches(self, mat2)
    _check_result(self.dtype, out_dtype, out)
    return torch.bmm(self.to(out_dtype), mat2.to(out_dtype), out=out)


def _baddbmm(
    self: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    out_dtype: torch.dtype,
    *,
    beta: complex = 1,
    alpha: complex = 1,
    out: torch.Tensor | None = None,
) -> Any:
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


_PRODUCTS: dict[str, Kernel] = {"mm": _mm, "addmm": _addmm, "bmm": _bmm, "baddbmm": _baddbmm}

_CUDA_ONLY: dict[str, Kernel] = {
    **sync_batch_norm.KERNELS,
    "_convert_weight_to_int4pack": int4_weights.pack,
    "_weight_int4pack_mm": int4_weights.product,
    "_cudnn_ctc_loss": _ctc_loss,
    "cudnn_grid_sampler": _grid_sampler,
    "cudnn_grid_sampler_backward": _grid_sampler_backward,
}
"""Ops that the CPU does not have."""
