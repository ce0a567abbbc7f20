"""Device-side asserts: an impossible index or label makes a device unusable. Start with `device_asserts`.

`failing_threads` finds the thread that fails, `sites` has the asserts of CUDA's kernels (file, line, words),
`domain_edges` the values that a kernel must not be given.

May import `driver.placement`, `driver.cost`, `driver.base`.
"""
