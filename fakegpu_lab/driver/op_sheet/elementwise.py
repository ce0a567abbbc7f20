"""Elementwise ops, most of which need no row: they stream."""

from __future__ import annotations

import torch

from fakegpu_lab.driver.autocast import scripted_regions
from fakegpu_lab.driver.base.half_precision import BOTH
from fakegpu_lab.driver.cost.estimators import updating
from fakegpu_lab.driver.cost.op_row import family, row
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.ops import fused_kernels
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.hardware.time import host_costs

_FLOAT16 = frozenset((torch.float16,))

row("addcdiv", cpu_scalars=False)
row("addcmul", devices=rules.addcmul)
row("rsub", devices=rules.reordered("other", "self"))
row("complex", devices=rules.kernel("out_complex_out"))
row("polar", devices=rules.kernel("out_polar_out"))
row("erfinv", "logit", in_float32=BOTH)
row("polygamma", "round.decimals", in_float32=_FLOAT16)
row("gelu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward", grows=False)
row("silu_backward", runs=fused_kernels.silu_backward, grows=False)
row("mish_backward", runs=fused_kernels.mish_backward)
row("_add_relu", no_kernel="CUDA")
row("is_same_size", "_has_same_storage_numel", devices=rules.any_device)
row("_autocast_to_reduced_precision", "_autocast_to_full_precision", runs=scripted_regions.below_autograd)

listed = family(host_costs.LIST)
listed("_fused_adam_", "_fused_adamw_", cost=updating(0, 2, 3, 4), devices=rules.fused_optimizer)
listed("_fused_sgd_", "_fused_adagrad_", cost=updating(0, 2), devices=rules.fused_optimizer, shape=shapes.nothing)
