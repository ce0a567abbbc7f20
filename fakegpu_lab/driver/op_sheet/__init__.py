"""The op sheet: what is known of each ATen op, one row an op, by family. Start with `products`.

A row says what differs from an op that streams and computes as on the CPU (`cost.op_row.Row` lists the columns). To
change what an op costs, refuses, asserts or computes, change its row; in-place and ``out=`` forms follow. This room may
import every room of the driver below the recorder; nothing but `install` imports it.
"""

from fakegpu_lab.driver.op_sheet import (
    attention,
    convolutions,
    elementwise,
    factories,
    indexing,
    linear_algebra,
    losses,
    norms,
    pooling,
    products,
    random,
    recurrent,
    reductions,
    refused,
    sparse,
)

__all__ = [
    "attention",
    "convolutions",
    "elementwise",
    "factories",
    "indexing",
    "linear_algebra",
    "losses",
    "norms",
    "pooling",
    "products",
    "random",
    "recurrent",
    "reductions",
    "refused",
    "sparse",
]
