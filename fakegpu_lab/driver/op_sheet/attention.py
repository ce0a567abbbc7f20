"""Attention: the function that chooses a kernel, the fused kernels, and their backwards."""

from __future__ import annotations

from fakegpu_lab.driver.cost.matrix_products import fused_attention
from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.ops.attention import attention
from fakegpu_lab.driver.ops.attention.fused import CUDNN, EFFICIENT, FLASH, backward, forward
from fakegpu_lab.driver.placement.determinism import alert_once
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.ATTENTION)

row("scaled_dot_product_attention", runs=attention.below_autograd)
row("_fused_sdp_choice", runs=attention.choice_of)

# The second op of each line is over sequences of several lengths, packed into one tensor.
row("_scaled_dot_product_flash_attention", "_flash_attention_forward", runs=forward(FLASH))
row("_scaled_dot_product_efficient_attention", "_efficient_attention_forward", runs=forward(EFFICIENT))
row("_scaled_dot_product_cudnn_attention", runs=forward(CUDNN))
row(
    "_scaled_dot_product_flash_attention_backward",
    "_flash_attention_backward",
    runs=backward(FLASH),
    alert=alert_once("Flash Attention"),
)
row(
    "_scaled_dot_product_efficient_attention_backward",
    "_efficient_attention_backward",
    runs=backward(EFFICIENT),
    alert=alert_once("Memory Efficient attention"),
)
row("_scaled_dot_product_cudnn_attention_backward", runs=backward(CUDNN), alert=alert_once("cuDNN Attention"))

# The CPU's fused kernel, tagged as random because of its dropout, which it refuses.
_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"
row(_ON_CPU, cost=fused_attention(False, 0, 4), grows=False, random=False)
row(f"{_ON_CPU}_backward", cost=fused_attention(True, 1, 7), grows=False, random=False)
