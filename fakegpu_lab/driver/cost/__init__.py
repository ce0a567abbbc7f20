"""What an overload is, and what its kernel costs: FLOPs, bytes, nanoseconds, workspace. Start with `op`.

`op` reads from an overload's schema, once, what the dispatch path needs. `work` counts bytes and elements; `products`
(matrix products, attention), `convolutions` and `estimators` (all others that do not simply stream) say what a kernel
costs, `formats` what it computes in. `launching` queues it on a stream. `workspace` has cuBLAS's own memory.

May import `driver.base`.
"""
