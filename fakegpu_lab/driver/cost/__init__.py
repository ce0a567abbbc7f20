"""What an overload is, and what its kernel costs: FLOPs, bytes, nanoseconds, workspace. Start with `op`.

`op` reads from an overload's schema, once, what the dispatch path needs; `op_row` is what else is known of it. `work`
counts bytes and elements; `matrix_products`, `convolutions` and `estimators` (all others that do not simply stream) say
what a kernel costs. `launching` queues it on a stream. `workspace` has cuBLAS's memory.

May import `driver.base`.
"""
