"""Ops that CUDA computes in another way than the CPU, one subject a file. Start with `cuda_only_kernels`.

`cuda_only_kernels` has what CUDA computes and the CPU cannot, `fused_kernels` what is one kernel on CUDA and several
here; the rest is named after its op. Fused attention is the folder `attention`.

May import `driver.copies`, `driver.random`, `driver.asserts`, `driver.placement`, `driver.cost`, `driver.base`.
"""
