"""The steps of fused optimizers, one kernel over lists of tensors."""

from __future__ import annotations

from fakegpu_lab.driver.cost.estimators import updating
from fakegpu_lab.driver.cost.op_row import family
from fakegpu_lab.driver.meta import shapes
from fakegpu_lab.driver.placement import rules
from fakegpu_lab.hardware.time import host_costs

row = family(host_costs.LIST)

row("_fused_adam_", "_fused_adamw_", cost=updating(0, 2, 3, 4), devices=rules.fused_optimizer)
row("_fused_sgd_", "_fused_adagrad_", cost=updating(0, 2), devices=rules.fused_optimizer, shape=shapes.nothing)
