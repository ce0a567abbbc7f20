"""Attention: the function that chooses a kernel, the fused kernels, and their backwards."""

from __future__ import annotations

from fakegpu_lab.driver.cost.matrix_products import fused_attention
from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.ops.attention import attention, backward, kernels, varlen
from fakegpu_lab.driver.placement.determinism import alert_once
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.ATTENTION)

row("scaled_dot_product_attention", runs=attention.below_autograd)
row("_fused_sdp_choice", runs=attention.choice_of)

_FLASH, _EFFICIENT = alert_once("Flash Attention"), alert_once("Memory Efficient attention")

row("_scaled_dot_product_flash_attention", runs=kernels.one_kernel(kernels.flash))
row("_scaled_dot_product_efficient_attention", runs=kernels.one_kernel(kernels.efficient, kernels.EFFICIENT))
row("_scaled_dot_product_cudnn_attention", runs=kernels.one_kernel(kernels.cudnn, kernels.CUDNN))
row(
    "_scaled_dot_product_flash_attention_backward",
    runs=kernels.one_kernel(backward.flash_backward),
    alert=_FLASH,
)
row(
    "_scaled_dot_product_efficient_attention_backward",
    runs=kernels.one_kernel(backward.efficient_backward, kernels.EFFICIENT),
    alert=_EFFICIENT,
)
row(
    "_scaled_dot_product_cudnn_attention_backward",
    runs=kernels.one_kernel(backward.cudnn_backward, kernels.CUDNN),
    alert=alert_once("cuDNN Attention"),
)

row("_fill_mem_eff_dropout_mask_", runs=kernels.fill_mask)

# Over packed sequences of several lengths.
row("_flash_attention_forward", runs=kernels.one_kernel(varlen.flash, varlen.cost))
row("_flash_attention_backward", runs=kernels.one_kernel(varlen.flash_backward, varlen.cost), alert=_FLASH)
row("_efficient_attention_forward", runs=kernels.one_kernel(varlen.efficient, varlen.cost))
row("_efficient_attention_backward", runs=kernels.one_kernel(varlen.efficient_backward, varlen.cost), alert=_EFFICIENT)

# The CPU's fused kernel, tagged as random because of its dropout, which it refuses.
_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"
row(_ON_CPU, cost=fused_attention(False, 0, 4), grows=False, random=False)
row(f"{_ON_CPU}_backward", cost=fused_attention(True, 1, 7), grows=False, random=False)
