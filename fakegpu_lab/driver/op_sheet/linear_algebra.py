"""Solvers, decompositions and Fourier transforms, which cuSOLVER, cuBLAS and cuFFT compute."""

from __future__ import annotations

from fakegpu_lab.driver.base.half_precision import SLOW_PRODUCTS
from fakegpu_lab.driver.cost.estimators import solving, transforming
from fakegpu_lab.driver.cost.op_row import row
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.ops.differences import by_qr, conjugating, without_driver
from fakegpu_lab.driver.placement import dtypes, rules

_CHOLESKY = {"cost": solving(1 / 3), "values": conjugating}
_LU = {"cost": solving(2 / 3), "values": conjugating}
_SOLVE = {"cost": solving(2.0), "values": conjugating}
_EIGEN = {"cost": solving(9.0), "values": conjugating}
_SVD = solving(20.0)

row("linalg_cholesky_ex", **_CHOLESKY)
row("cholesky", cost=solving(1 / 3))
row("linalg_lu_factor_ex", "linalg_lu", "_linalg_det", "_linalg_slogdet", **_LU)
row("linalg_inv_ex", "_linalg_solve_ex", "linalg_solve_triangular", "linalg_qr", "ormqr", **_SOLVE)
row("triangular_solve", "cholesky_inverse", **_SOLVE)
row("geqrf", **_SOLVE, shape=shapes.geqrf)
row("linalg_lstsq", cost=solving(2.0), values=by_qr, checks=dtypes.lstsq, devices=rules.lstsq)
row("_linalg_eigh", "linalg_eig", **_EIGEN)
row("linalg_matrix_exp", **_EIGEN, in_float32=SLOW_PRODUCTS)
row("_linalg_svd", cost=_SVD, values=without_driver, checks=dtypes.svd)
row("cholesky_solve", **_SOLVE, devices=rules.cholesky_solve)
row("linalg_householder_product", "linalg_ldl_solve", "linalg_lu_solve", **_SOLVE)
row("linalg_ldl_factor_ex", **_LU)
row("_linalg_eigvals", "linalg_eigvals", "linalg_matrix_sqrth", **_EIGEN)
row("linalg_pinv", cost=_SVD, values=conjugating)
row(
    "linalg__powsum",
    "linalg_cross",
    "linalg_vector_norm",
    "lu_unpack",
    values=conjugating,
)
row("_linalg_check_errors", values=conjugating, synchronises=True, reports_asserts=True)

row("_fft_c2c", "_fft_r2c", "_fft_c2r", cost=transforming)
