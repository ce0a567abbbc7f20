"""Normalizations.

Statistics come first, then the output: operands are read twice. Backward reads both for the sums, and again. In half
precision all is computed in float32, statistics included (cuda/layer_norm_kernel.cu and cuda/Normalization.cu,
`acc_type`); torch's CPU kernels would keep the statistics in the parameters' dtype, and lose digits there. An instance
norm is a batch norm.
"""

from __future__ import annotations

from fakegpu_lab.driver.cost.estimators import TWICE, batch_norm
from fakegpu_lab.driver.cost.op_row import computes, family
from fakegpu_lab.driver.ops import fused_kernels, sync_batch_norm
from fakegpu_lab.driver.ops.differences import backward_in_float32, channels_first, forward_in_float32
from fakegpu_lab.driver.ops.differences import batch_norm as batch_norm_values
from fakegpu_lab.driver.placement import dtypes, rules
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.NORM)
batch_row = family(host_costs.BATCH_NORM)

row("native_layer_norm", checks=dtypes.layer_norm, values=forward_in_float32, grows=False)
row("native_layer_norm_backward", cost=TWICE, values=backward_in_float32(5), grows=False)
row("native_group_norm", cost=TWICE, checks=dtypes.group_norm, values=channels_first, grows=False)
row("native_group_norm_backward", cost=TWICE, values=channels_first, grows=False)
row("_fused_rms_norm", runs=fused_kernels.rms_norm, grows=False)
row("_fused_rms_norm_backward", cost=TWICE, runs=fused_kernels.rms_norm_backward, grows=False)

batch_row(
    "native_batch_norm",
    cost=batch_norm,
    checks=dtypes.batch_norm,
    devices=rules.batch_norm,
    values=batch_norm_values,
    grows=False,
)
batch_row(
    "_native_batch_norm_legit",
    cost=batch_norm,
    devices=rules.batch_norm,
    values=batch_norm_values,
)
batch_row("_native_batch_norm_legit_no_training", devices=rules.batch_norm, values=forward_in_float32)
batch_row("_batch_norm_no_update", values=forward_in_float32)
batch_row("_batch_norm_with_update", cost=TWICE, values=forward_in_float32)
batch_row("cudnn_batch_norm", cost=batch_norm)
batch_row(
    "native_batch_norm_backward",
    cost=TWICE,
    checks=dtypes.batch_norm_backward,
    values=backward_in_float32(2),
    grows=False,
)
batch_row("batch_norm_backward", cost=TWICE, values=backward_in_float32(2))
batch_row("cudnn_batch_norm_backward", cost=TWICE)

# Only CUDA has these.
batch_row("batch_norm_stats", values=computes(sync_batch_norm.stats))
batch_row("batch_norm_gather_stats", values=computes(sync_batch_norm.gather_stats))
batch_row("batch_norm_gather_stats_with_counts", values=computes(sync_batch_norm.gather_stats_with_counts))
batch_row("batch_norm_elemt", values=computes(sync_batch_norm.elemt))
batch_row("batch_norm_backward_reduce", values=computes(sync_batch_norm.backward_reduce))
batch_row("batch_norm_backward_elemt", values=computes(sync_batch_norm.backward_elemt))
