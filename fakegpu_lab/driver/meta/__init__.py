"""``compute="meta"``: shapes, memory and time, but no values. Start with `shapes`.

`shapes` has shape functions that torch lacks, `no_values` the errors of ops that need values. `assumed_values` has the
values that torch's own code gets when it reads one. `shape_cache` caches the results of torch's shape functions.

May import `driver.copies`, `driver.base`.
"""
