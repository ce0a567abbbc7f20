"""Which device an op runs on, and which devices and dtypes CUDA refuses. Start with `device_check`.

`device_check` decides; `table` says which rule an op follows, `rules` and `shared_checks` have the rules and CUDA's
sentences. `dtypes` and `refusals` have what CUDA has no kernel for; `preflight` asks for memory before a large result
is computed.

May import `driver.cost`, `driver.base`.
"""
