"""Ops that CUDA computes differently from the CPU, one subject a file. Start with `cuda_only_kernels`.

`cuda_only_kernels` has ops and dtypes that only CUDA computes, `fused_kernels` ops that are one kernel on CUDA and
several on the CPU; the others are named after their op. `attention` and `recurrent` are folders.

May import `driver.copies`, `driver.random`, `driver.asserts`, `driver.placement`, `driver.cost`, `driver.base`.
"""
