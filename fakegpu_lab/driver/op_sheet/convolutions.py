"""Convolutions, which cuDNN computes."""

from __future__ import annotations

from fakegpu_lab.driver.cost.convolutions import backward_workspaces, convolution, convolution_backward, workspaces
from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.ops import convolution as ops
from fakegpu_lab.driver.placement import dtypes, rules
from fakegpu_lab.driver.placement.memory_preflight import convolution_bound
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.CONVOLUTION)

row(
    "convolution",
    cost=convolution,
    bound=convolution_bound,
    checks=dtypes.convolution,
    devices=rules.convolution,
    values=ops.forward,
    shape=shapes.convolution,
    borrows=workspaces,
)
row("convolution_backward", cost=convolution_backward, grows=False, values=ops.backward, borrows=backward_workspaces)
row("_convolution", cost=convolution, values=ops.in_float32)
row("slow_conv3d_forward", "to_mkldnn", no_kernel="CUDA")
