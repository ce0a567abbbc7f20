"""CUDA's autocast lists: the dtype in which each op runs, by policy.

From aten/src/ATen/autocast_mode.h (``AT_FORALL_LOWER_PRECISION_FP`` and the lists after it) and the registrations of
aten/src/ATen/autocast_mode.cpp, overload by overload. An op that is on no list runs in the dtypes of its arguments.
"""

from __future__ import annotations

from fakegpu_lab.driver.base.cuda_messages import TORCH_VERSION


def _overloads(text: str) -> list[str]:
    return text.split()


LOWER_PRECISION_FP = _overloads("""
    _convolution  _convolution.deprecated  conv1d  conv2d  conv3d  conv_tbc  convolution
    conv_transpose1d  conv_transpose2d.input  conv_transpose3d.input
    cudnn_convolution  cudnn_convolution_transpose
    addbmm  addmm  addmv  addr  baddbmm  bmm  chain_matmul  einsum  linalg_multi_dot  linalg_vecdot  linear  matmul  mm
    mv  prelu
    _thnn_fused_gru_cell  _thnn_fused_lstm_cell  gru_cell  lstm_cell  rnn_relu_cell  rnn_tanh_cell
    _scaled_dot_product_flash_attention  scaled_dot_product_attention
""")
"""Every floating-point argument is cast to the region's dtype, float16 by default."""

FP32 = _overloads("""
    acos  asin  cosh  erfinv  exp  expm1  log  log10  log1p  log2  reciprocal  rsqrt  sinh  softplus  tan
    pow.Scalar  pow.Tensor_Scalar  pow.Tensor_Tensor
    group_norm  layer_norm  native_layer_norm  rms_norm
    cdist  cosine_similarity  dist  frobenius_norm.dim  logsumexp  nuclear_norm  nuclear_norm.dim  pdist  renorm
    binary_cross_entropy_with_logits  cosine_embedding_loss  hinge_embedding_loss  huber_loss  kl_div  l1_loss
    margin_ranking_loss  mse_loss  multi_margin_loss  multilabel_margin_loss  nll_loss  nll_loss2d  poisson_nll_loss
    smooth_l1_loss  soft_margin_loss  triplet_margin_loss
    _upsample_bicubic2d_aa  _upsample_bilinear2d_aa  _upsample_nearest_exact1d  _upsample_nearest_exact2d
    _upsample_nearest_exact3d  upsample_bicubic2d  upsample_bilinear2d  upsample_linear1d  upsample_nearest1d
    upsample_nearest2d  upsample_nearest3d  upsample_trilinear3d
""")
"""Every floating-point argument is cast to float32."""
if TORCH_VERSION >= (2, 15):
    FP32.append("linalg_matrix_sqrth")

FP32_SET_OPT_DTYPE = _overloads("""
    cumprod  cumsum  linalg_matrix_norm  linalg_matrix_norm.str_ord  linalg_vector_norm  log_softmax.int  prod
    prod.dim_int  softmax.int  sum  sum.dim_IntList
""")
"""``dtype`` is set to float32 if the call leaves it out: the op casts as it computes, without a copy."""

FP32_APPEND_DTYPE = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
"""Overloads without a ``dtype``, and those that are called instead, with float32."""

PROMOTE = _overloads("""
    addcdiv  addcmul  atan2  bilinear  cross  dot  grid_sampler  index_put  scatter_add  tensordot  vdot
""")
"""Every floating-point argument is cast to the widest dtype among them."""

BANNED = {
    "binary_cross_entropy": (
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
        "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
        "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
        "safe to autocast."
    )
}
"""Ops that are refused in a region, with the reason."""
