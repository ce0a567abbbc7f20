"""Scaled dot-product attention as CUDA's fused kernels compute it. Start with `attention`.

`choice` picks flash, memory-efficient, cuDNN's or math as a card does, by the `checks`; `kernels` and `backward` run
one, `varlen` on packed sequences; `values` has the numbers.
"""
