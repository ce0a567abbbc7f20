"""``compute="meta"``: shapes, memory and time, and no values. Start with `no_values`.

`no_values` says which op cannot go on without values, `assumed_values` what torch's own code is told when it reads one,
`shape_cache` keeps what torch's shape functions returned.

May import `driver.copies`, `driver.base`.
"""
