"""Ops that CUDA computes differently from the CPU, one subject a file. Start with `fused_kernels`.

`fused_kernels` has ops that are one kernel on CUDA and several on the CPU; the others are named after their ops.
`attention` and `recurrent` are folders. `driver.op_sheet` says which op uses what.

May import `driver.copies`, `driver.random`, `driver.asserts`, `driver.placement`, `driver.cost`, `driver.base`.
"""
