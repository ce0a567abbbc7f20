"""Scaled dot-product attention as CUDA's fused kernels compute it. Start with `attention`.

`choice` picks the flash, memory-efficient, cuDNN or math kernel as a card does. `fused` runs the fused ones, forward
and backward, `values` computes their results on the host. Imports go down in that order.
"""
