"""The device an op runs on, and the devices and dtypes that CUDA refuses. Start with `device_check`.

`device_check` decides. `rule_of_op` says which rule an op follows; `rules` and `mismatch_errors` have the rules and
CUDA's error messages, `native_functions` reads torch's own list of kernels. `dtypes` and `refusals` have the dtypes
and ops without a CUDA kernel. `memory_preflight` takes memory before a large result is computed.

May import `driver.cost`, `driver.base`.
"""
