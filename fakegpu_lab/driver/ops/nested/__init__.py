"""Nested tensors of the strided layout on a device, and the fast path of encoder layers, which makes them of padding.

The inner tensor is a nested one on the host, and torch's own kernels for nested CPU tensors compute, one tensor after
the other. CUDA has the same kernels, with fused ones for padding, products and attention (aten/src/ATen/native/nested).
Simplified: every op is one kernel, which reads its operands once and writes its results once; a product counts its
operations. Jagged tensors are a Python class of torch's own and need none of this.

Start with `computing`.
"""
