"""Device-side asserts: an out-of-range index or label makes a device unusable. Start with `device_asserts`.

`failing_threads` finds the threads that fail, `kernel_asserts` has the asserts of CUDA's kernels (file, line, text).
`domain_edges` has ops that CUDA and the CPU compute differently at the edge of their domain.

May import `driver.placement`, `driver.cost`, `driver.base`.
"""
