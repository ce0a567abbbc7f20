"""Triton's kernels on simulated devices. Start with `driver`: Triton takes it for CUDA's.

Triton's own compiler compiles each kernel for the card: registers, shared memory and errors are the real ones. What the
kernel computes is worked out on the CPU from its source (`rewriting`, `programs`), many programs at a time
(`builder`), and every access is logged (`loads_and_stores`, `warps`). `install` is called when a machine is enabled;
only `install` may be imported where Triton is not installed.

May import `kernels.launch`, `kernels.pointers`, `driver`, `hardware`.
"""
