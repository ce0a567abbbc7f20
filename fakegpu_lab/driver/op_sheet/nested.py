"""Nested tensors."""

from __future__ import annotations

from fakegpu_lab.driver.autocast import scripted_regions
from fakegpu_lab.driver.cost.op_row import row
from fakegpu_lab.driver.ops.nested import encoder_layer, making

row(
    "_nested_tensor_from_mask",
    "_nested_tensor_from_mask_left_aligned",
    "_nested_from_padded",
    "_nested_view_from_buffer",
    "_nested_view_from_buffer_copy",
    "_nested_tensor_from_tensor_list",
    runs=making.made,
)
row("_transformer_encoder_layer_fwd", runs=encoder_layer.layer)
row("_native_multi_head_attention", runs=encoder_layer.attention)
row("_autocast_to_reduced_precision", "_autocast_to_full_precision", runs=scripted_regions.below_autograd)
