"""What an overload is, and what its kernel costs: FLOPs, bytes, nanoseconds, workspace. Start with `op`.

`op` works out once what the dispatch path needs to know of an overload; `work` measures operands and results,
`products` has matrix products, convolutions and attention; `workspace` has the memory that libraries take for
themselves.

May import `driver.base`.
"""
