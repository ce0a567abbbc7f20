"""Kernels that are written for `numba.cuda`: they run here, thread by thread, on device tensors.

Start with `launching`, the way of one launch. numba itself compiles each kernel as far as it can without a card
(`compiling`), so that its own errors appear; then `threads` runs the Python function once for each thread. `arrays` and
`scalars` are what a thread computes with, `functions` is `numba.cuda` inside a kernel; `requests` makes warps' requests
of what the threads accessed. `host_api`, `device_arrays` and `streams` are `numba.cuda` outside; `install` has the rows
that put all of it into numba's modules, whether numba was imported before or is later. Only the user imports numba.

May import the rest of `kernels`, `driver` and `hardware`.
"""
