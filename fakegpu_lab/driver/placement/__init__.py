"""The device an op runs on, and the devices and dtypes that CUDA refuses. Start with `device_check`.

`device_check` decides. `rules` and `mismatch_errors` have the rules that ops follow and CUDA's error messages, the
latter by torch's own list of kernels. `dtypes` has the dtypes and ops without a CUDA kernel. `memory_preflight` takes
memory before a large result is computed.

May import `driver.cost`, `driver.base`.
"""
