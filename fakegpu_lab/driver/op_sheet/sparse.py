"""Sparse tensors: what makes them of parts, and returns their parts."""

from __future__ import annotations

from fakegpu_lab.driver.cost.op_row import row
from fakegpu_lab.driver.dispatch import sparse

row(
    "_indices",
    "_values",
    "indices",
    "values",
    "crow_indices",
    "col_indices",
    "ccol_indices",
    "row_indices",
    runs=sparse.part,
)
row(
    "_sparse_coo_tensor_with_dims_and_tensors",
    "_sparse_compressed_tensor_unsafe",
    "sparse_compressed_tensor",
    runs=sparse.from_parts,
)
row("_to_dense", runs=sparse.to_dense)
row("_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward", no_kernel="SparseCsrCUDA")
row("_spdiags", no_kernel="CUDA")
row(
    "_convert_weight_to_int4pack_for_cpu",
    "_weight_int4pack_mm_for_cpu",
    "_dyn_quant_matmul_4bit",
    "_dyn_quant_pack_4bit_weight",
    no_kernel="CUDA",
)
