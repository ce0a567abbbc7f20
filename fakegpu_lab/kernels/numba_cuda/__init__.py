"""Kernels that are written for `numba.cuda`: they run here, thread by thread, on device tensors.

Start with `launching.py`, the way of one launch. numba itself compiles each kernel as far as it can without a card, so
that its own errors appear; then `threads.py` runs the Python function once for each thread. `arrays.py` and `scalars.py`
are what a thread computes with, `functions.py` is `numba.cuda` inside a kernel; `requests.py` makes warps' requests of
what the threads accessed. `host_api.py` and `device_arrays.py` are `numba.cuda` outside; `install.py` puts all of it
into numba's modules, whether numba was imported before or is later. numba is imported only by the user.

May import the rest of `kernels`, `driver` and `hardware`.
"""
