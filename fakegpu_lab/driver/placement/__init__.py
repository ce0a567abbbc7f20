"""The device an op runs on, and the devices and dtypes that CUDA refuses. Start with `device_check`.

`device_check` decides. `table` says which rule an op follows; `rules` and `shared_checks` have the rules and CUDA's
error messages, `native_functions` reads torch's own list of kernels. `dtypes` and `refusals` have the dtypes and ops
without a CUDA kernel. `preflight` takes memory before a large result is computed.

May import `driver.cost`, `driver.base`.
"""
