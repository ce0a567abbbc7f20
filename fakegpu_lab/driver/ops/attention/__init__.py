"""Scaled dot-product attention as CUDA's fused kernels compute it. Start with `attention`.

`choice` picks the flash, memory-efficient, cuDNN or math kernel as a card does, by the conditions in `checks`.
`kernels` and `backward` run the fused ones, `varlen` runs them on packed sequences, `values` computes their results on
the host. Imports go down in that order: attention, choice and varlen, backward, kernels, values and checks.
"""
