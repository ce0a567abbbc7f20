"""Ops that are not simulated; `base.not_simulated` has the sentences."""

from __future__ import annotations

from fakegpu_lab.driver.base.not_simulated import refuse
from fakegpu_lab.driver.cost.op_row import row

row(
    "_nested_tensor_from_mask",
    "_nested_tensor_from_mask_left_aligned",
    "_nested_from_padded",
    "_nested_view_from_buffer",
    "_nested_view_from_buffer_copy",
    "_nested_tensor_from_tensor_list",
    runs=refuse("strided nested tensors"),
)
row("_transformer_encoder_layer_fwd", "_native_multi_head_attention", runs=refuse("encoder fast path"))
row(
    "_cslt_compress",
    "_cslt_sparse_mm",
    "_cslt_sparse_mm_search",
    "_sparse_semi_structured_addmm",
    "_sparse_semi_structured_apply",
    "_sparse_semi_structured_apply_dense",
    "_sparse_semi_structured_linear",
    "_sparse_semi_structured_mm",
    "_sparse_semi_structured_tile",
    "_to_sparse_semi_structured",
    runs=refuse("semi-structured sparsity"),
)
row("_weight_int4pack_mm", "_convert_weight_to_int4pack", runs=refuse("4-bit weights"))
row("_fill_mem_eff_dropout_mask_", runs=refuse("attention options"))
row(
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
    "quantize_per_channel",
    "_empty_affine_quantized",
    "_empty_per_channel_affine_quantized",
    runs=refuse("quantized tensors"),
)
row("mm.dtype", "addmm.dtype", "bmm.dtype", "baddbmm.dtype", runs=refuse("products of another dtype"))
row(
    "cudnn_convolution",
    "cudnn_convolution_transpose",
    "cudnn_convolution_relu",
    "cudnn_convolution_add_relu",
    "_cudnn_ctc_loss",
    runs=refuse("cuDNN by name"),
)
