"""The rule that each op follows when its tensors are on several devices."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from fakegpu_lab.driver.placement import native_functions
from fakegpu_lab.driver.placement.mismatch_errors import generated_check
from fakegpu_lab.driver.placement.rules import (
    NO_CPU_SCALARS,
    addcmul,
    any_device,
    batch_norm,
    bce_with_logits,
    block_diag,
    cholesky_solve,
    convolution,
    dot_out,
    elementwise,
    foreach,
    fused_optimizer,
    index,
    index_fill,
    index_put,
    kernel,
    lstsq,
    masked_fill,
    mv,
    reordered,
    searchsorted,
    segment_reduce,
    where,
)

if TYPE_CHECKING:
    from fakegpu_lab.driver.cost.op import Op
    from fakegpu_lab.driver.placement.mismatch_errors import Tensors
    from fakegpu_lab.driver.placement.rules import Rule


def check(op: Op, tensors: Tensors, args: tuple[Any, ...]) -> None:
    """Raise CUDA's error if `op` does not take `tensors`, which are on several devices."""
    if op.name == "convolution":
        convolution(tensors, transposed=args[op.position["transposed"]])
    elif (rule := RULES.get(op.name)) is not None:
        rule(op, tensors)
    elif op.name.startswith("_foreach_"):
        foreach(op, tensors)
    elif not generated_check(op, tensors):
        elementwise(op, tensors)


@cache
def accepts_cpu_scalar(op: Op) -> bool:
    """Whether a 0-dim CPU tensor is allowed, without calling `check`: plain elementwise ops, out of place."""
    return (
        op.pointwise
        and not op.written
        and op.name not in RULES
        and op.name not in NO_CPU_SCALARS
        and not op.name.startswith("_foreach_")
        and native_functions.checked_kernel(native_functions.full_name(op)) is None
    )


_cat = kernel("cat", out="cat_out_out")

RULES: dict[str, Rule] = {
    # Elementwise, with an order or an exception of its own.
    "where": where,
    "addcmul": addcmul,
    "addcmul_": addcmul,
    "rsub": reordered("other", "self"),
    "binary_cross_entropy_with_logits": bce_with_logits,
    # Composites: their kernel's check.
    "mv": mv,
    "stack": _cat,
    "_stack": _cat,
    "embedding": kernel("_index_select", weight="self", indices="index"),
    "_trilinear": kernel("bmm", i1="self", i2="mat2", i3="mat2"),
    "complex": kernel("out_complex_out"),
    "polar": kernel("out_polar_out"),
    "masked_scatter": kernel("_masked_scatter_"),
    "put": kernel("_put_"),
    "sort": kernel("sort_stable", out="sort_out_values_stable"),
    "softmax": kernel("_softmax", out="_softmax_out_out"),
    "log_softmax": kernel("_log_softmax", out="_log_softmax_out_out"),
    "native_batch_norm": batch_norm,
    "_native_batch_norm_legit": batch_norm,
    "_native_batch_norm_legit_no_training": batch_norm,
    "linalg_lstsq": lstsq,
    "cholesky_solve": cholesky_solve,
    "block_diag": block_diag,
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"), fused_optimizer),
    # Kernels with checks of their own.
    "dot": dot_out,
    "vdot": dot_out,
    "searchsorted": searchsorted,
    "segment_reduce": segment_reduce,
    "masked_fill": masked_fill,
    "masked_fill_": masked_fill,
    "index": index,
    "_unsafe_index": index,
    "index_put": index_put,
    "index_put_": index_put,
    "_index_put_impl_": index_put,
    "_unsafe_index_put": index_put,
    "index_fill": index_fill,
    "index_fill_": index_fill,
    # They copy what they need, or read it on the host.
    "copy": any_device,
    "slice_scatter": any_device,
    "select_scatter": any_device,
    "diagonal_scatter": any_device,
    "as_strided_scatter": any_device,
    "resize_as_": any_device,
    "is_same_size": any_device,
    "_has_same_storage_numel": any_device,
    "fill": any_device,
    "fill_": any_device,
    "set_": any_device,
    "bernoulli": any_device,
    "bernoulli_": any_device,
    "_ctc_loss": any_device,
    "_cudnn_ctc_loss": any_device,
}
"""By name, for all overloads."""
