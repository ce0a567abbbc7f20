"""Kernels that the user writes: they run on the CPU, on device tensors, and what they do to the card is counted.

Start with `launch`: one launch is one kernel of the simulated device. `pointers` finds the tensor that an address
belongs to, `races` accesses of two blocks that nothing orders. The front ends are rooms of their own:
`triton_programs` and `numba_cuda`. `fused_loops` has the values of the kernels that torch.compile makes.

May import `driver` and `hardware`.
"""
