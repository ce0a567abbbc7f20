"""What a kernel that the user wrote does to a card: memory traffic, bank conflicts, occupancy, time. Numpy, no torch.

A front end (Triton's kernels, numba's) logs every access in an `AccessLog`; `launch_time` turns the log into a time.
Start with `accesses`. May import `catalogue` and `time`.
"""
