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
