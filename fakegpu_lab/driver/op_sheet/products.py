"""Products of matrices and vectors.

cuBLAS computes them (aten/src/ATen/cuda/CUDABlas.cpp): with a workspace, in formats that exclude integers, and
deterministically only with a fixed workspace. `dot` alerts on nothing. `addr` is not here: CUDA computes it elementwise
(aten/src/ATen/native/LinearAlgebra.cpp, `addr` is a TensorIterator kernel).
"""

from __future__ import annotations

from fakegpu_lab.driver.base.half_precision import BOTH, SLOW_PRODUCTS
from fakegpu_lab.driver.cost.matrix_products import (
    bmm,
    conv_tbc,
    euclidean_distances,
    mm,
    pairwise_distances,
    trilinear,
)
from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.ops import differences
from fakegpu_lab.driver.ops import linear as whole_linear
from fakegpu_lab.driver.placement import dtypes, rules
from fakegpu_lab.driver.placement.determinism import cublas
from fakegpu_lab.driver.placement.memory_preflight import product_bound
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.PRODUCT)

_GEMM = {"cublas": "gemm", "alert": cublas, "in_float32": SLOW_PRODUCTS}
_GEMV = {"cublas": "gemv", "alert": cublas, "in_float32": SLOW_PRODUCTS}

row("mm", **_GEMM, cost=mm(0), no_integers="addmm_cuda", bound=product_bound)
row("addmm", **_GEMM, cost=mm(1), no_integers="addmm_cuda", bound=product_bound, shape=shapes.addmm)
row("bmm", **_GEMM, cost=bmm(0), no_integers="baddbmm_cuda", bound=product_bound)
row("baddbmm", **_GEMM, cost=bmm(1), no_integers="baddbmm_cuda", bound=product_bound)
row("addbmm", **_GEMM, cost=bmm(1), no_integers="addmm_cuda")
row("mv", **_GEMV, cost=mm(0), no_integers="addmv_impl_cuda", devices=rules.mv)
row("addmv", **_GEMV, cost=mm(1), no_integers="addmv_impl_cuda")
row("dot", "vdot", cublas="dot", cost=mm(0), no_integers="dot", in_float32=BOTH, devices=rules.dot_out)
row("linear", alert=cublas, no_integers="addmm_cuda", runs=whole_linear.linear)
row("linear_backward", host=host_costs.LINEAR_BACKWARD, alert=cublas, runs=whole_linear.linear_backward)

# cuBLASLt, which adds a bias and an activation to the product.
row(
    "_addmm_activation",
    cublas="lt",
    cost=mm(1),
    no_integers="addmm_cuda",
    in_float32=SLOW_PRODUCTS,
    values=differences.with_tanh,
)
row("_int_mm", cublas="lt", cost=mm(0), checks=dtypes.int_mm)
row("_scaled_mm", cublas="lt", cost=mm(0), checks=dtypes.scaled_mm)
row("_grouped_mm", shape=shapes.grouped_mm)

row("_trilinear", cost=trilinear, devices=rules.kernel("bmm", i1="self", i2="mat2", i3="mat2"))
row("_sparse_addmm", cost=mm(1))
row("_euclidean_dist", cost=euclidean_distances)
row("_cdist_forward", "_pdist_forward", cost=pairwise_distances)
row("conv_tbc", cost=conv_tbc)
